#pragma once

#include <cstdint>

#include "kernels/launch.hpp"
#include "kernels/primitives.cuh"

namespace strait::kernels {

/// Delays the beginning of a block according to its group. Called before a barrier of the block. Blocks that begin a
/// round together also end it together, because links serve them all alike; while all of them wait for their fences and
/// look for the next data, nothing is being sent. Groups that begin further apart than this takes stay apart.
__device__ __forceinline__ void stagger(std::uint32_t stagger_ns) {
  const std::uint64_t wait_ns = std::uint64_t{stagger_ns} * (blockIdx.x % stagger_groups);
  if (threadIdx.x != 0 || wait_ns == 0) return;
  const std::uint64_t begin_ns = device_now_ns();
  while (device_now_ns() - begin_ns < wait_ns) {
  }
}

}  // namespace strait::kernels
