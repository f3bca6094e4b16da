#pragma once

#include <cstdint>

#include "kernels/launch.hpp"
#include "kernels/primitives.cuh"

namespace strait::kernels {

/// Blocks that begin a round together end it together, for links serve all alike: while each then waits for its fence
/// and looks for what comes next, nobody has anything under way. Groups that begin further apart than that takes stay
/// apart. Before a barrier of the block.
__device__ __forceinline__ void stagger(std::uint32_t stagger_ns) {
  const std::uint64_t wait_ns = std::uint64_t{stagger_ns} * (blockIdx.x % stagger_groups);
  if (threadIdx.x != 0 || wait_ns == 0) return;
  const std::uint64_t begin_ns = device_now_ns();
  while (device_now_ns() - begin_ns < wait_ns) {
  }
}

}  // namespace strait::kernels
