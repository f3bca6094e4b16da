#pragma once

#include <chrono>
#include <cstdint>

namespace strait::staged {

/// For whoever looks after deadlines: how long a rank's copies have waited, and which of the others is furthest behind.
struct Wait {
  std::chrono::milliseconds duration{};
  std::uint32_t rank = 0;
};

}  // namespace strait::staged
