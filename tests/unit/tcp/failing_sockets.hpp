#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>

namespace strait::testing {

/// sendmsg() and recvmsg() of a test program, which replace the system's functions and can fail.
struct FailingSockets {
  /// Makes the next `calls` calls fail with this error.
  void fail(int error_number, int calls = std::numeric_limits<int>::max()) {
    error = error_number;
    left = calls;
  }
  void work_again() { left = 0; }
  bool fails() {
    if (left == 0) return false;
    --left;
    ++failed;
    errno = error;
    return true;
  }

  std::atomic<int> error = 0;
  std::atomic<int> left = 0;
  std::atomic<int> failed = 0;  ///< number of calls that have failed
};
inline FailingSockets failing_sockets;

}  // namespace strait::testing

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  return strait::testing::failing_sockets.fails() ? -1 : syscall(SYS_sendmsg, socket, message, flags);
}
extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  return strait::testing::failing_sockets.fails() ? -1 : syscall(SYS_recvmsg, socket, message, flags);
}
