#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/forks.hpp"

namespace strait {

/// Objects that a program leaves as they are when its process ends (exit, or the end of main). `end` is called once for
/// all of them then, while they still live, in the process that added them: a forked child has none of their threads.
template <class T, void (*end)(const std::vector<T*>&)>
class LeftAtExit {
 public:
  static LeftAtExit& instance() {
    static auto* const left = new LeftAtExit;  // an object may be destroyed after what is static here
    [[maybe_unused]] static const int registered = std::atexit([] { instance().finish(); });
    return *left;
  }
  void add(T& object) {
    const std::lock_guard lock(mutex_);
    if (generation_ != fork_generation()) objects_.clear();  // the parent's
    generation_ = fork_generation();
    objects_.push_back(&object);
  }
  /// Waits for `end`, if that is at it.
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
