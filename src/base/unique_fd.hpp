#pragma once

#include <unistd.h>

#include <utility>

namespace strait {

/// The number under which to keep a new descriptor: its own, or, where it has that of a standard stream which the
/// program has closed, one above those, as the same description. What anybody writes to "stderr" would land in it.
/// -1, with errno: there is none.
int beyond_standard_streams(int fd);

/// Owns a file descriptor and closes it. Everything opened for one should be opened with CLOEXEC.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(beyond_standard_streams(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    // close() is not repeated on EINTR: Linux has released the number by then, and another thread may own it.
    if (int old = std::exchange(fd_, beyond_standard_streams(fd)); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace strait
