#pragma once

#include <signal.h>

namespace strait {

/// Whether this thread is one of Strait's own, which runs nothing of the user's: it says so when it begins. What it
/// selects, as a CUDA device, needs no putting back.
inline thread_local bool is_own_thread = false;

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
