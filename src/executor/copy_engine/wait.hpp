#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace strait::copy_engine {

/// For those who check deadlines: how long a rank's copies have waited, and which other rank is furthest behind.
struct Wait {
  std::chrono::milliseconds duration{};
  std::uint32_t rank = 0;
};

/// Measures how long a number that indicates progress has not changed, from occasional samples.
class Standstill {
 public:
  std::chrono::milliseconds look(std::uint64_t progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!since_ || progress != seen_) since_ = now;
    seen_ = progress;
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - *since_);
  }
  /// Makes the next sample the first.
  void reset() { since_.reset(); }

 private:
  std::uint64_t seen_ = 0;
  std::optional<std::chrono::steady_clock::time_point> since_;
};

}  // namespace strait::copy_engine
