#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <thread>

namespace strait {

/// Whether this thread is one of Strait's own, which runs nothing of the user's: it says so when it begins. What it
/// selects, as a CUDA device, needs no putting back.
inline thread_local bool is_own_thread = false;

/// By a thread of Strait's own that polls, and naps between looks: as first of all. `name`: of at most 15 characters.
inline void begin_polling_thread(const char* name) {
  constexpr unsigned long timer_slack_ns = 1000;  // of naps; the system's default would stretch each by 50 us
  is_own_thread = true;
  pthread_setname_np(pthread_self(), name);
  prctl(PR_SET_TIMERSLACK, timer_slack_ns);
}
/// Between two looks.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

/// While one exists, threads that this one starts take no signals: the user's are for the user's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace strait
