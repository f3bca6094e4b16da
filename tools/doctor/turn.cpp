#include "doctor/turn.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/deadline.hpp"
#include "base/write_error.hpp"
#include "select/kept_file.hpp"

namespace strait::doctor {
namespace {

/// Returns whether `file` is still what `name` stands for. The process that held the lock before has removed the file
/// that it locked; others may have locked a new one since.
bool is_file_of(const std::string& name, const UniqueFd& file) {
  struct stat named {};
  struct stat opened {};
  return ::stat(name.c_str(), &named) == 0 && ::fstat(file.get(), &opened) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

Status take_lock(const UniqueFd& file, const std::string& name, const Deadline& deadline) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail_errno("cannot lock " + name, errno, "Set XDG_CACHE_HOME to a folder on a local disk");
    if (deadline.expired())
      return fail(Code::timeout,
                  name + " has been locked for 10 minutes by another calibration. Wait for it, or end it");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return {};
}

}  // namespace

Turn::~Turn() {
  if (lock_) ::unlink(name_.c_str());  // while it is locked: nobody else's file can have this name yet
}

Result<Turn> take_turn(const std::string& path) {
  const std::string name = path + ".measuring";
  STRAIT_TRY(make_folder_of(name));
  const Deadline deadline = Deadline::after_ms(600'000);  // that of plans takes two minutes, on a busy machine longer
  while (true) {
    UniqueFd file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return fail_to_write("cannot open " + name, errno);
    STRAIT_TRY(take_lock(file, name, deadline));
    if (is_file_of(name, file)) return Turn(name, std::move(file));
  }
}

}  // namespace strait::doctor
