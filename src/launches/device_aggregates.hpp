#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "calls/call.hpp"
#include "kernels/launch.hpp"
#include "launches/device_calls.hpp"

namespace strait {

/// Several collectives of a group in one launch (NCCL: aggregated operations). Each has lanes of its own, so that they
/// do not wait for one another, and the launch costs as much as that of one collective.
struct AggregateLaunch {
  kernels::Protocol protocol = kernels::Protocol::lines;
  bool reduces = false;
  DataType type = DataType::uint8;
  void* stream = nullptr;
  kernels::Aggregate argument{};
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;  ///< per block
};

/// Returns how many of a group's collectives, from the first on, share a launch; 1: the first has its own. The same on
/// all ranks, because it depends only on what all ranks must agree on.
std::size_t aggregated_calls(const DeviceCalls& calls, std::span<const Call> group);

/// Returns one launch for all of these calls; or one for each, in order and on the same lanes, if they are not on one
/// stream, or one of them writes what another reads or writes. Ranks need not agree on which of the two it is.
std::vector<AggregateLaunch> launches_of_aggregate(const DeviceCalls& calls, std::span<const Call> aggregated);

}  // namespace strait
