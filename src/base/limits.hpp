#pragma once

#include <cstdint>

/// How much of something there may be, as the public interface says it.
namespace strait {

/// More ranks are a mistake, and would cost the root their number in memory.
inline constexpr int most_ranks = 1 << 19;

/// In place of a number of thread blocks: copy engines carry what they can (STRAIT_NO_SMS).
inline constexpr std::uint32_t no_sms = 511;
inline constexpr std::uint32_t most_sms = no_sms - 1;  ///< more thread blocks than any call takes

/// Thread blocks of a kernel, as `max_sms` bounds them. Where no SMs are to be used, what has to be added up takes the
/// fewest that keep copy engines busy (four H200), and what copy engines cannot carry takes one.
constexpr std::uint32_t blocks_of(std::uint32_t max_sms, bool adds) {
  return max_sms != no_sms ? max_sms : adds ? 4 : 1;
}

}  // namespace strait
