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

/// Which ranks reach which: bit b of [a]. At most 32 ranks.
using Reach = std::vector<std::uint32_t>;
/// Takes from `reach` what a rank has found not to work: bit b of missing[a], in both directions. Whether that was any.
bool take_away(Reach& reach, std::span<const std::uint32_t> missing);
/// What does not work between ranks: bit b of ranks[a]. `works`: nothing is missing, else the first reason.
struct Missing {
  Status works;
  std::vector<std::uint32_t> ranks;
};
/// The islands of `reach` that work: `attempt` says what does not within those that it is given, until nothing is
/// missing. `why` becomes the last reason. An error: no two ranks reach each other, or the attempt's own. Where `reach`
/// and all answers are the same on all ranks, so are the islands.
Result<std::vector<Island>> find_islands(Reach reach, std::string& why,
                                         const std::function<Result<Missing>(std::span<const Island>)>& attempt);
/// Every rank is in one island, and within an island all reach one another: each rank in turn founds one, unless it is
/// in one already, and takes every later rank that still fits. Where all have the same `reach`, they get the same.
std::vector<Island> islands_of(const Reach& reach);
/// Whether all are of one size.
bool are_alike(std::span<const Island> islands);
struct IslandPlace {
  std::uint32_t island;  ///< its number
  std::uint32_t place;   ///< the rank's within it
};
IslandPlace place_of(std::span<const Island> islands, std::uint32_t rank);
/// "0-1, 2-3, 4"
std::string describe(std::span<const Island> islands);

}  // namespace strait
