#pragma once

#include <signal.h>
#include <time.h>

#include <cerrno>

namespace strait {

/// While it exists, a write by this thread beyond the limit of file sizes (ulimit -f) fails with EFBIG instead of
/// raising SIGXFSZ, which would end the process. The program's own handling of SIGXFSZ is unaffected: a signal that was
/// pending before stays pending.
class SizeLimitIsNoSignal {
 public:
  SizeLimitIsNoSignal() {
    sigemptyset(&limit_);
    sigaddset(&limit_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &limit_, &before_);
  }
  ~SizeLimitIsNoSignal() {
    const int saved_errno = errno;
    const timespec no_time{};
    while (!was_pending_ && sigtimedwait(&limit_, nullptr, &no_time) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved_errno;
  }
  SizeLimitIsNoSignal(const SizeLimitIsNoSignal&) = delete;
  SizeLimitIsNoSignal& operator=(const SizeLimitIsNoSignal&) = delete;

 private:
  sigset_t limit_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace strait
