#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "executor/copy_engine/stream_driver.hpp"
#include "support/random_data.hpp"

/// Streams that are delayed or stopped, for tests of what their peers do meanwhile.
namespace strait::testing {

/// Reason for skipping a test of several ranks under the thread sanitizer.
inline constexpr const char* race_after_failure =
    "ranks whose waits a failure has ended race, and their outputs are undefined";

/// Returns a hook (FakeStreams::set_hook()) that occasionally delays a stream by up to 8 ms, so that one of its writes
/// to a peer may be late while the write to the next peer is not.
inline std::function<void(const copy_engine::MemoryOperation&)> stragglers(std::uint64_t seed) {
  return [state = std::make_shared<std::atomic<std::uint64_t>>(seed)](const copy_engine::MemoryOperation&) {
    const std::uint64_t random = mix(state->fetch_add(1));
    if (random % 60 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random / 64 % 8000));
  };
}

/// A point at which a stream stops, after `after` operations, until open() is called (at most 30 s).
class Stop {
 public:
  explicit Stop(int after) : left_(after) {}
  void pass() {
    std::unique_lock lock(mutex_);
    if (--left_ >= 0) return;
    reached_ = true;
    open_.wait_for(lock, std::chrono::seconds(30), [&] { return is_open_; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex_);
    return reached_;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    open_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable open_;
  int left_;
  bool reached_ = false, is_open_ = false;
};

}  // namespace strait::testing
