#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"

/// What the host needs to know about prompt kernels (prompt.cuh).
namespace strait::kernels {

inline constexpr std::uint32_t max_prompt_threads = 320;  ///< of a block: one warp for each piece
/// Longest messages that prompt kernels carry in packets. For longer ones other kernels are faster, because more
/// threads have more loads in flight; for copies in one direction this is the case earlier (4 H100, through host
/// memory).
inline constexpr std::size_t most_prompt_packets = 16 << 10, most_prompt_packets_one_way = 4 << 10;

constexpr std::size_t longest_message(const Exchange& call) {
  std::size_t longest = 0;
  for (std::uint32_t peer = 0; peer < call.ring.ranks; ++peer)
    longest = std::max({longest, call.send[peer].bytes, call.receive[peer].bytes});
  return longest;
}

/// Returns whether prompt kernels can carry a call and are faster. Each rank decides this for itself; peers see no
/// difference. Over lines, the only reductions they carry are sums.
constexpr bool can_be_prompt(const Exchange& call, Protocol protocol, bool reduces) {
  if (protocol == Protocol::bulk || call.rounds != 1 || call.pieces * 32 > max_prompt_threads) return false;
  if (protocol == Protocol::lines) return !reduces || call.op == ReduceOp::sum;
  const bool goes_one_way = !reduces && call.lead == 0;
  return longest_message(call) <= (goes_one_way ? most_prompt_packets_one_way : most_prompt_packets);
}

constexpr std::uint32_t prompt_threads(const Exchange& call) { return 32 * call.pieces; }

}  // namespace strait::kernels
