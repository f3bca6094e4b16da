#include "files.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/write_error.hpp"
#include "base/writes_raise_no_signal.hpp"

namespace strait::tools {
namespace {

tl::unexpected<Error> cannot_write(const std::string& path, int reason) {
  return fail_to_write("Cannot write " + path, reason);
}

}  // namespace

Status check_svg(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_device =
      path.starts_with("/dev/") || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored));
  if (path.empty() || path.ends_with(".svg") || is_device) return {};
  return fail(Code::invalid_argument, option + " " + path + ": the name must end in .svg");
}

/// A file that is there stays as it is until the new one is whole, for a disk may be full. Devices, pipes, and files in
/// folders in which nothing can be made, are written to where they are.
Status write_file(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : fs::path(path);
  if (fs::exists(path, ignored) && !fs::exists(target, ignored)) target = path;  // /dev/stdout: a pipe has no name
  const bool is_replaced = !fs::exists(target, ignored) || fs::is_regular_file(target, ignored);
  const fs::path folder = target.parent_path().empty() ? "." : target.parent_path();
  const bool has_room = is_replaced && ::access(folder.c_str(), W_OK | X_OK) == 0;
  const fs::path written = has_room ? fs::path(target.string() + ".part") : target;
  const WritesRaiseNoSignal no_signal;
  std::ofstream file(written);
  file << text << std::flush;
  int reason = file ? 0 : errno;
  file.close();
  if (has_room && reason == 0 && std::rename(written.c_str(), target.c_str()) != 0) reason = errno;
  if (reason == 0) return {};
  if (has_room) fs::remove(written, ignored);
  return cannot_write(path, reason);
}

Status check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return cannot_write(path, EISDIR);
  const fs::path folder = fs::path(path).parent_path();
  const bool is_there = fs::exists(path, ignored);
  const std::string asked = is_there ? path : folder.empty() ? "." : folder.string();
  if (::access(asked.c_str(), is_there ? W_OK : W_OK | X_OK) != 0) return cannot_write(path, errno);
  return {};
}

}  // namespace strait::tools
