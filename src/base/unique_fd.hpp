#pragma once

#include <unistd.h>

#include <utility>

namespace strait {

/// Returns a descriptor for the same open file that is none of the standard streams: `fd` itself, or, if it is 0, 1 or
/// 2 because the program has closed that stream, a duplicate above them (`fd` is then closed). Otherwise whatever is
/// written to "stderr" would end up in this file. Returns -1 and sets errno if there is no descriptor left.
int move_above_stdio(int fd);

/// Owns a file descriptor and closes it. Whatever is opened for a UniqueFd should be opened with CLOEXEC.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(move_above_stdio(fd)) {}
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
    // close() is not repeated on EINTR: Linux has already released the number, and another thread may own it by now.
    if (int old = std::exchange(fd_, move_above_stdio(fd)); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace strait
