#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace strait {

/// A point on the monotonic clock by which an operation must be done. Pass it by value down the call chain: one
/// deadline then bounds the sum of all waits of the operation.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// The longest duration: 73 years, a quarter of the range of the 64-bit nanoseconds in which waits are counted here
  /// and on GPUs. Longer ones count as `never`.
  static constexpr std::int64_t longest_ms = std::numeric_limits<std::int64_t>::max() / 4'000'000;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after_ms(std::int64_t duration_ms) {
    if (duration_ms >= longest_ms) return never();
    return Deadline(Clock::now() + std::chrono::milliseconds(std::max<std::int64_t>(duration_ms, 0)));
  }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= when_; }

  /// Returns the milliseconds left, rounded up so that a wait of that length reaches the deadline; 0 once it has
  /// expired.
  std::int64_t remaining_ms() const {
    if (is_never()) return std::numeric_limits<std::int64_t>::max();
    auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now()).count();
    return std::max<std::int64_t>(left, 0);
  }

  /// Returns the timeout for one poll(2) call: the time left, but at most `slice_ms`, so that the caller regularly
  /// checks for aborts.
  int poll_ms(int slice_ms = 50) const { return static_cast<int>(std::min<std::int64_t>(remaining_ms(), slice_ms)); }

  friend Deadline earlier(Deadline a, Deadline b) { return a.when_ < b.when_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace strait
