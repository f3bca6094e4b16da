#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace strait {

/// Decides when a long wait is worth a line in the log: after `first_ms`, after three and six times that, and then
/// again whenever another six times that have passed (10 s, 30 s, and then each minute). Counts from its construction.
/// Not thread-safe.
class WaitReminder {
 public:
  static constexpr std::int64_t default_first_ms = 10'000;

  /// `rank` is the one that waits, for the log.
  explicit WaitReminder(int rank, std::int64_t first_ms = default_first_ms);

  /// Returns how long the wait has taken, such as "10 s", if a line is due; otherwise nothing.
  std::optional<std::string> due();
  /// Logs a warning if a line is due: how long this rank has waited, and `what` for.
  void remind(const std::string& what);

 private:
  using Clock = std::chrono::steady_clock;
  const int rank_;
  const std::int64_t first_ms_;
  const Clock::time_point begin_ = Clock::now();
  std::int64_t next_ms_;  ///< after `begin_`
};

}  // namespace strait
