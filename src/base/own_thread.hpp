#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <thread>

namespace strait {

/// Whether this thread belongs to Strait and runs no user code; set by the thread when it starts. What such a thread
/// selects, for example the current CUDA device, need not be restored.
inline thread_local bool is_own_thread = false;

/// Prepares a thread of Strait that polls, and sleeps briefly between polls; the thread calls this first. `name` has at
/// most 15 characters.
inline void begin_polling_thread(const char* name) {
  constexpr unsigned long timer_slack_ns =
      1000;  // of the short sleeps; with the system's default each would take up to 50 us longer
  is_own_thread = true;
  pthread_setname_np(pthread_self(), name);
  prctl(PR_SET_TIMERSLACK, timer_slack_ns);
}
/// Tells the CPU that this thread is in a polling loop; called between two polls.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

/// Blocks all signals for this thread while it exists. Threads started meanwhile inherit that, so the user's signals
/// are delivered to the user's threads only.
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
