#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/forks.hpp"

namespace strait {

/// Registry of objects that the program has not destroyed when its process ends (exit, or return from main). `end` is
/// then called once for all of them while they are still alive, and only in the process that added them: a forked child
/// has none of their threads. All members may be called from any thread.
template <class T, void (*end)(const std::vector<T*>&)>
class LeftAtExit {
 public:
  static LeftAtExit& instance() {
    static auto* const left = new LeftAtExit;  // never destroyed, because objects may be destroyed after static ones
    [[maybe_unused]] static const int registered = [] {
      // Another thread may hold the mutex when this process forks; nobody would unlock the child's copy.
      ::pthread_atfork([] { left->mutex_.lock(); }, [] { left->mutex_.unlock(); }, [] { left->mutex_.unlock(); });
      return std::atexit([] { left->finish(); });
    }();
    return *left;
  }
  void add(T& object) {
    const std::lock_guard lock(mutex_);
    if (generation_ != fork_generation()) objects_.clear();  // those of the parent process
    generation_ = fork_generation();
    objects_.push_back(&object);
  }
  /// Waits for `end` if it is running, so that the object may be destroyed afterwards.
  void remove(T& object) {
    const std::lock_guard lock(mutex_);
    std::erase(objects_, &object);
  }

 private:
  void finish() {
    if (generation_ != fork_generation()) return;
    const std::lock_guard lock(mutex_);
    if (!objects_.empty()) end(objects_);
  }
  std::mutex mutex_;
  std::atomic<std::uint32_t> generation_ = fork_generation();
  std::vector<T*> objects_;
};

}  // namespace strait
