#include "bootstrap/wait_reminder.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace strait {

WaitReminder::WaitReminder(int rank, std::int64_t first_ms)
    : rank_(rank), first_ms_(std::max<std::int64_t>(first_ms, 1)), next_ms_(first_ms_) {}

std::optional<std::string> WaitReminder::due() {
  const auto waited_ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_).count();
  if (waited_ms < next_ms_) return std::nullopt;
  // A process that was stopped for long gets one line, not all those that it has missed.
  for (const std::int64_t period_ms = 6 * first_ms_; next_ms_ <= waited_ms;)
    next_ms_ = next_ms_ < 3 * first_ms_ ? 3 * first_ms_ : (next_ms_ / period_ms + 1) * period_ms;
  return waited_ms < 1000 ? std::to_string(waited_ms) + " ms" : std::to_string(waited_ms / 1000) + " s";
}

void WaitReminder::remind(const std::string& what) {
  if (const auto waited = due()) log_warn(rank_, "has waited for " + *waited + ": " + what);
}

}  // namespace strait
