#pragma once

#include <chrono>
#include <mutex>
#include <stop_token>
#include <thread>

namespace strait::testing {

/// Measures elapsed time without the periods in which the machine itself stood still, as a virtual machine does while
/// its host runs others. A thread that repeatedly sleeps for a millisecond notices these by waking up late. So a bound
/// on the time tests the library and not the machine.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  Clock::duration elapsed() const {
    const auto now = Clock::now();
    return now - began_ - stalled_until(now);
  }
  /// Returns the time up to a moment in the past.
  Clock::duration until(Clock::time_point moment) const { return moment - began_ - stalled(); }
  /// Returns the time that does not count.
  Clock::duration stalled() const { return stalled_until(Clock::now()); }

 private:
  static constexpr std::chrono::milliseconds nap{1}, usual{5};

  /// How much of the time since `began` that the watcher has slept is more than usual; 0 if it is not.
  static Clock::duration late(Clock::time_point began, Clock::time_point now) {
    const auto late = now - began - nap;
    return late > usual ? late : Clock::duration{};
  }
  /// After a standstill whoever asks may wake before the watcher does: what that one is late by already counts, too.
  Clock::duration stalled_until(Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    return stalled_ + late(asleep_since_, now);
  }
  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(nap);
      const std::lock_guard lock(mutex_);
      const auto now = Clock::now();
      stalled_ += late(asleep_since_, now);
      asleep_since_ = now;
    }
  }

  const Clock::time_point began_ = Clock::now();
  mutable std::mutex mutex_;
  Clock::time_point asleep_since_ = began_;
  Clock::duration stalled_{};
  std::jthread watcher_{[this](const std::stop_token& stop) { watch(stop); }};  ///< last: its thread uses the others
};

}  // namespace strait::testing
