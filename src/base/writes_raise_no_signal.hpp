#pragma once

#include <signal.h>
#include <time.h>

#include <cerrno>

namespace strait {

/// While it exists, a write by this thread beyond the limit of file sizes (ulimit -f), or to a pipe that nobody reads,
/// fails with EFBIG or EPIPE instead of raising SIGXFSZ or SIGPIPE, which would end the process. The program's own
/// handling of these signals is unaffected: one that was pending before stays pending.
class WritesRaiseNoSignal {
 public:
  WritesRaiseNoSignal() {
    sigset_t pending;
    const bool is_known = sigpending(&pending) == 0;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigemptyset(&raised_);
    for (const int each : {SIGXFSZ, SIGPIPE}) {
      sigaddset(&blocked, each);
      if (!is_known || sigismember(&pending, each) != 1) sigaddset(&raised_, each);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~WritesRaiseNoSignal() {
    const int saved_errno = errno;
    const timespec no_time{};
    while (sigtimedwait(&raised_, nullptr, &no_time) > 0 || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved_errno;
  }
  WritesRaiseNoSignal(const WritesRaiseNoSignal&) = delete;
  WritesRaiseNoSignal& operator=(const WritesRaiseNoSignal&) = delete;

 private:
  sigset_t raised_{};  ///< those that are pending at the end because of writes
  sigset_t before_{};
};

}  // namespace strait
