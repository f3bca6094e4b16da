#include "communicator/flight_folder.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/size_limit.hpp"
#include "base/unique_fd.hpp"
#include "base/write_error.hpp"

namespace strait {
namespace {

constexpr const char* folder_remedy = "Name one that is there and that this user can write to, or that can be made";

struct KnownFolder {
  std::mutex mutex;
  std::string given;  ///< the variable's value
  std::string path;   ///< its absolute path
  bool is_prepared = false;
};
KnownFolder& known_folder() {
  static auto* const known = new KnownFolder;  // never destroyed: the thread that dumps may outlive main()
  return *known;
}

/// Brings what is known up to date with the variable, which the program may have changed. The lock must be held.
void look_up(KnownFolder& known) {
  std::string given = Environment().text("STRAIT_FLIGHT_RECORDER").value_or("");  // any text is accepted
  if (given == known.given) return;
  std::error_code error;
  const std::filesystem::path path = given.empty() ? "" : std::filesystem::absolute(given, error);
  known.path = error ? given : path.string();  // without a working directory it cannot be made, which will be said
  known.given = std::move(given);
  known.is_prepared = false;
}

/// Makes a file in the folder and removes it: permissions alone do not tell, for example of read-only file systems.
Status check_writable(const std::string& path) {
  std::string name = path + "/.strait-flight-XXXXXX";
  const UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file)
    return fail_errno("cannot make files in the folder " + path + " (STRAIT_FLIGHT_RECORDER)", errno, folder_remedy);
  ::unlink(name.c_str());
  return {};
}

}  // namespace

std::string flight_folder() {
  KnownFolder& known = known_folder();
  const std::scoped_lock lock(known.mutex);
  look_up(known);
  return known.path;
}

Result<std::string> make_flight_folder() {
  const std::string path = flight_folder();
  if (path.empty())
    return fail(Code::invalid_argument,
                "there is no file name for the flight recorder. Give one, or set STRAIT_FLIGHT_RECORDER to a folder");
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    return fail_errno("cannot make the folder " + path + " (STRAIT_FLIGHT_RECORDER)", error.value(), folder_remedy);
  return path;
}

Status write_flight_file(const std::string& path, int rank, const std::string& text) {
  const std::string unfinished = path + ".part-" + std::to_string(rank);
  const SizeLimitIsNoSignal no_signal;
  errno = 0;
  std::ofstream file(unfinished, std::ios::trunc);
  const bool opened = file.is_open();
  if (opened) file << text << std::flush;
  file.close();
  int problem = file ? 0 : errno != 0 ? errno : EIO;
  if (problem == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) problem = errno;
  if (problem == 0) return {};
  if (opened) std::remove(unfinished.c_str());
  return fail_to_write("cannot write the flight recorder's file " + path, problem);
}

void prepare_flight_folder() {
  KnownFolder& known = known_folder();
  {
    const std::scoped_lock lock(known.mutex);
    look_up(known);
    if (known.path.empty() || known.is_prepared) return;
    known.is_prepared = true;
  }
  if (const auto checked = make_flight_folder().and_then(check_writable); !checked)
    log_warn(-1, "the flight recorder's files will be lost: " + checked.error().message);
}

}  // namespace strait
