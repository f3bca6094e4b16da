#pragma once

#include <chrono>
#include <cstdint>

namespace strait {

/// Reads the CPU's time-stamp counter: takes a few nanoseconds, and gives the same time in all processes of a host.
/// TickScale converts its unit. Never 0.
inline std::uint64_t ticks_now() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc() | 1;
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks | 1;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) | 1;
#endif
}

/// Converts ticks to time, by a straight line through two moments: construction and read().
class TickScale {
 public:
  /// The line at one moment, which converts ticks to microseconds since 1970.
  struct Reading {
    std::uint64_t ticks;
    double unix_us;
    double us_per_tick;

    double unix_us_of(std::uint64_t other) const {
      return unix_us + static_cast<double>(static_cast<std::int64_t>(other - ticks)) * us_per_tick;
    }
  };

  TickScale() : first_ticks_(ticks_now()), first_(std::chrono::steady_clock::now()) {}
  /// Reads the clocks. Within the first 10 ms after construction this sleeps until they have passed, because too short
  /// a line is inaccurate.
  Reading read() const;

 private:
  std::uint64_t first_ticks_;
  std::chrono::steady_clock::time_point first_;
};

}  // namespace strait
