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

/// Collectives of a group in one launch (NCCL calls that aggregated operations): each has lanes of its own, so that
/// they do not wait for one another, and a launch costs as much as one of them alone.
struct AggregateLaunch {
  kernels::Protocol protocol = kernels::Protocol::lines;
  bool reduces = false;
  DataType type = DataType::uint8;
  void* stream = nullptr;
  kernels::Aggregate argument{};
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;  ///< of a block
};

/// How many of a group's collectives, from the first one on, are aggregated; 1: that one goes by itself. All ranks find
/// the same, because nothing but what they must agree on decides.
std::size_t aggregated_calls(const DeviceCalls& calls, std::span<const Call> group);

/// One launch for all of them, or one for each, in order, on the same lanes: where they are not on one stream, or where
/// one of them writes what another reads or writes. Which of the two is a rank's own matter.
std::vector<AggregateLaunch> launches_of_aggregate(const DeviceCalls& calls, std::span<const Call> aggregated);

}  // namespace strait
