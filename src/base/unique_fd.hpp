#pragma once

#include <unistd.h>

#include <utility>

namespace strait {

/// Owns a file descriptor and closes it. Everything opened for one should be opened with CLOEXEC.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
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
    if (int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace strait
