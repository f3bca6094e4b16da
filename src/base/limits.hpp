#pragma once

#include <cstdint>

/// Limits that the public interface states.
namespace strait {

/// More ranks than this are taken for a mistake. The memory that rank 0 needs at init grows with the number of ranks.
inline constexpr int most_ranks = 1 << 19;

/// Stands in place of a number of thread blocks, and means that copy engines do the work where they can
/// (STRAIT_NO_SMS).
inline constexpr std::uint32_t no_sms = 511;
inline constexpr std::uint32_t most_sms = no_sms - 1;  ///< more thread blocks than any call uses

/// Returns the number of thread blocks of a kernel under the limit `max_sms` (0: no limit). With `no_sms`, kernels that
/// add take four, the fewest that keep the copy engines busy (measured on four H200), and operations that copy engines
/// cannot carry take one.
constexpr std::uint32_t blocks_of(std::uint32_t max_sms, bool adds) {
  return max_sms != no_sms ? max_sms : adds ? 4 : 1;
}

}  // namespace strait
