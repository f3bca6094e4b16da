#pragma once

#include <atomic>
#include <chrono>
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

  Clock::duration elapsed() const { return until(Clock::now()); }
  /// Returns the time up to a moment in the past.
  Clock::duration until(Clock::time_point moment) const { return moment - began_ - stalled(); }
  /// Returns the time that does not count.
  Clock::duration stalled() const { return stalled_.load(); }

 private:
  void watch(const std::stop_token& stop) {
    constexpr auto nap = std::chrono::milliseconds(1), usual = std::chrono::milliseconds(5);
    while (!stop.stop_requested()) {
      const auto before = Clock::now();
      std::this_thread::sleep_for(nap);
      const auto late = Clock::now() - before - nap;
      if (late > usual) stalled_ = stalled_.load() + late;
    }
  }

  const Clock::time_point began_ = Clock::now();
  std::atomic<Clock::duration> stalled_{Clock::duration{}};
  std::jthread watcher_{[this](const std::stop_token& stop) { watch(stop); }};  ///< last: its thread uses the others
};

}  // namespace strait::testing
