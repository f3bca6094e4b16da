#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace strait {

/// Ranks that all reach one another's memory, in rank order.
using Island = std::vector<std::uint32_t>;

/// Which ranks reach which: bit b of element a is set if rank a reaches rank b. At most 32 ranks.
using Reach = std::vector<std::uint32_t>;
/// Removes from `reach` what a rank has found not to work (bit b of missing[a]), in both directions. Returns whether
/// anything was removed.
bool take_away(Reach& reach, std::span<const std::uint32_t> missing);
/// What does not work between ranks: bit b of ranks[a]. `works` is success if nothing is missing, otherwise the first
/// reason.
struct Missing {
  Status works;
  std::vector<std::uint32_t> ranks;
};
/// Returns the islands of `reach` that work. `attempt` reports what does not work within the islands that it is given;
/// it is called again with the remaining islands until nothing is missing. `why` receives the last reason. Fails if no
/// two ranks reach each other, or if `attempt` fails. If `reach` and all answers are the same on all ranks, so are the
/// islands.
Result<std::vector<Island>> find_islands(Reach reach, std::string& why,
                                         const std::function<Result<Missing>(std::span<const Island>)>& attempt);
/// Divides the ranks into islands, within which all ranks reach one another. Each rank in turn founds an island, unless
/// it is in one already, and adds every later rank that reaches all members. With the same `reach` all ranks get the
/// same islands.
std::vector<Island> islands_of(const Reach& reach);
/// Returns whether all islands have the same size.
bool are_alike(std::span<const Island> islands);
struct IslandPlace {
  std::uint32_t island;  ///< number of the rank's island
  std::uint32_t place;   ///< the rank's place within it
};
IslandPlace place_of(std::span<const Island> islands, std::uint32_t rank);
/// Returns a text like "0-1, 2-3, 4".
std::string describe(std::span<const Island> islands);

}  // namespace strait
