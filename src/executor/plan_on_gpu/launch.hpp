#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/plan_on_gpu/program.hpp"
#include "plan/layout.hpp"

/// What a launch adds to an uploaded program, and what a failed launch leaves behind. Plain data, shared with the
/// device.
namespace strait::cuda {

struct RankBuffers {
  const void* input = nullptr;
  void* output = nullptr;
};

enum class WaitFailure : std::uint32_t { none, timeout, aborted };

/// Describes the first wait of a rank that gave up. In mapped host memory.
struct ErrorRecord {
  WaitFailure failure = WaitFailure::none;  ///< written last
  std::uint32_t lane = 0;
  std::uint32_t block = 0;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;
  std::uint32_t peer = 0;
  std::uint32_t tag = 0;
  std::uint64_t expected = 0;
  std::uint64_t seen = 0;
};

/// Shared by the host and all ranks of a group. In mapped host memory.
struct Control {
  std::uint32_t abort = 0;
  ErrorRecord errors[max_ranks];
};

/// The constants of a RankProgram, and device copies of its arrays.
struct DeviceProgram {
  FlatLane lanes[max_lanes];  ///< by value, so that a kernel's first loads depend on no other load
  const FlatStep* steps = nullptr;
  const FlatOperand* operands = nullptr;
  const FlatItem* items = nullptr;
  const Channel* channels = nullptr;
  std::uint32_t* error_claim = nullptr;  ///< device memory: non-zero once a thread has written the error record
  std::uint64_t state_offset = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t depth = 1;
  std::uint32_t block_slot_bytes = 0;
  std::uint32_t max_blocks = 1;
};

/// The kernel's parameter.
struct Launch {
  DeviceProgram program;
  std::byte* arenas[max_ranks] = {};
  RankBuffers buffers[max_ranks];
  Control* control = nullptr;
  std::uint64_t timeout_ns = 0;  ///< limit of each single wait
  Layout layout;
  std::uint32_t blocks = 1;  ///< thread blocks of each lane
};

}  // namespace strait::cuda
