#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "executor/cuda/runtime.hpp"
#include "executor/plan_on_gpu/kernels.hpp"
#include "executor/plan_on_gpu/launch.hpp"
#include "executor/plan_on_gpu/program.hpp"
#include "plan/plan.hpp"

namespace strait::cuda {

/// Runs one plan on the GPUs of one process: one rank a device, or several. For measurements and tests: what the
/// library's kernels are held against.
class Group {
 public:
  struct Options {
    ProgramOptions program;
    std::vector<int> devices;         ///< by rank
    std::uint64_t timeout_ms = 5000;  ///< of every single wait on the device
  };
  struct Operation {
    DataType type = DataType::float32;
    ReduceOp op = ReduceOp::sum;
    std::size_t count = 0;     ///< as the API counts
    std::uint32_t blocks = 1;  ///< of each lane
    /// A block's part of a slice, for plans whose slices nothing else bounds (no slots, no scratch); 0: whole chunks.
    std::size_t block_slice_bytes = 0;
  };

  /// Compiles and uploads the plan, and loads every kernel on every device: a kernel that is loaded only when first
  /// launched waits for kernels that wait for it.
  static Result<std::unique_ptr<Group>> create(const Plan& plan, const Options& options);

  /// Launches the operation on all ranks' streams; allocates, copies and waits for nothing, and may be captured. Ranks'
  /// kernels wait for one another, so all streams must be free to run at once.
  Status enqueue(const Operation& operation, std::span<const RankBuffers> buffers,
                 std::span<const cudaStream_t> streams);

  /// Whether a launch that has ended gave up, and where. From then on the group is unusable.
  Status error() const;
  /// Ends every wait, now and later.
  void abort();

 private:
  struct Rank {
    int device = 0;
    DeviceMemory arena;
    DeviceMemory program_memory;
    DeviceProgram program;
    std::uint32_t lanes = 0;
    std::uint32_t blocks_limit = 0;  ///< that are certain to run at once
  };
  Group(const Plan& plan, const Options& options) : plan_(plan), options_(options) {}
  Status upload(const RankProgram& program);
  Status check_operation(const Operation& operation, std::span<const RankBuffers> buffers,
                         std::span<const cudaStream_t> streams) const;
  Launch make_launch(const Operation& operation, std::span<const RankBuffers> buffers) const;

  Plan plan_;
  Options options_;
  Program program_;
  std::vector<Rank> ranks_;
  MappedMemory control_memory_;
  Control* control_ = nullptr;
};

/// The kernel of a type and operation, or an error that names them. For plans that only copy, any type of that size.
Result<const void*> find_kernel(DataType type, ReduceOp op, Protocol protocol, bool reduces);

}  // namespace strait::cuda
