#pragma once

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

namespace strait::testing {

/// How long something takes, without the time in which the machine itself stood still, as a virtual machine does whose
/// host runs others: a thread that sleeps for a millisecond again and again sees when it wakes up late. So a bound says
/// what the library does and not what the machine does.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  Clock::duration elapsed() const { return until(Clock::now()); }
  /// Until a moment that has passed.
  Clock::duration until(Clock::time_point moment) const { return moment - began_ - stalled(); }
  /// The time that does not count.
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
  std::jthread watcher_{[this](const std::stop_token& stop) { watch(stop); }};  ///< last: it uses the rest
};

}  // namespace strait::testing
