#include "select/kept_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/deadline.hpp"
#include "base/write_error.hpp"
#include "base/writes_raise_no_signal.hpp"

namespace strait {
namespace {

Status write_all(const UniqueFd& file, std::string_view text, const std::string& path) {
  const WritesRaiseNoSignal no_signal;
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_to_write("cannot write " + path, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file.get()) != 0) return fail_to_write("cannot write " + path, errno);
  return {};
}

}  // namespace

Result<std::string> cache_path(const Environment& environment, std::string_view name, std::string_view what) {
  std::string folder = environment.raw("XDG_CACHE_HOME");
  if (folder.empty() || folder.front() != '/') {  // the XDG specification says to ignore relative paths
    folder = environment.raw("HOME");
    if (folder.empty())
      return fail(Code::unsupported,
                  "no place for " + std::string(what) + ": neither XDG_CACHE_HOME nor HOME is set. Set one");
    folder += "/.cache";
  }
  return folder + "/strait/" + std::string(name);
}

Status make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return fail_to_write("cannot make the folder " + folder.string(), error.value());
  return {};
}

Result<UniqueFd> lock_kept_file(const std::string& path) {
  const std::string name = path + ".lock";
  UniqueFd file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail_to_write("cannot open the lock file " + name, errno);
  const Deadline deadline = Deadline::after_ms(10'000);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail_errno("cannot lock " + name, errno, "Set XDG_CACHE_HOME to a folder on a local disk");
    if (deadline.expired())
      return fail(Code::timeout, name + " has been locked for 10 s: another program hangs. End it and try again");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return file;
}

Status replace_kept_file(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return fail_to_write("cannot write " + draft, errno);
  Status written = write_all(file, text, draft);
  file.reset();
  if (written && std::rename(draft.c_str(), path.c_str()) != 0)
    written = fail_to_write("cannot put " + draft + " into place", errno);
  if (!written) ::unlink(draft.c_str());
  return written;
}

Result<std::string> read_kept_file(const std::string& path, std::size_t most_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) return fail(Code::unsupported, "is not there");
  struct stat status {};
  const auto unreadable = [] {
    return fail(Code::system_error, "cannot be read: " + std::string(std::strerror(errno)));
  };
  if (!file || ::fstat(file.get(), &status) != 0) return unreadable();
  if (!S_ISREG(status.st_mode)) return fail(Code::invalid_usage, "is no plain file");
  if (status.st_size > static_cast<off_t>(most_bytes)) return fail(Code::invalid_usage, "is far too long");
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t length = ::pread(file.get(), text.data(), text.size(), 0);
  if (length < 0) return unreadable();
  text.resize(static_cast<std::size_t>(length));
  return text;
}

}  // namespace strait
