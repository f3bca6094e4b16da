#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace strait {

/// A moment on the monotonic clock by which something must be done. Copy it down the call chain: one deadline bounds
/// all the waits of an operation together.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// In nanoseconds of 64 bits, as waits are counted here and on GPUs, no duration is longer. It is 73 years.
  static constexpr std::int64_t longest_ms = std::numeric_limits<std::int64_t>::max() / 4'000'000;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after_ms(std::int64_t duration_ms) {
    if (duration_ms >= longest_ms) return never();
    return Deadline(Clock::now() + std::chrono::milliseconds(std::max<std::int64_t>(duration_ms, 0)));
  }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= when_; }

  /// Milliseconds left, rounded up so that waiting for them reaches the deadline; 0 once expired.
  std::int64_t remaining_ms() const {
    if (is_never()) return std::numeric_limits<std::int64_t>::max();
    auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now()).count();
    return std::max<std::int64_t>(left, 0);
  }

  /// The timeout of one poll(2) call: what is left, but at most `slice_ms`, so that aborts are noticed.
  int poll_ms(int slice_ms = 50) const { return static_cast<int>(std::min<std::int64_t>(remaining_ms(), slice_ms)); }

  friend Deadline earlier(Deadline a, Deadline b) { return a.when_ < b.when_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace strait
