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

/// Runs one plan on the GPUs of one process, with one or several ranks on each device. For measurements and tests,
/// which compare the library's kernels with it.
class Group {
 public:
  struct Options {
    ProgramOptions program;
    std::vector<int> devices;         ///< by rank
    std::uint64_t timeout_ms = 5000;  ///< limit of each single wait on the device
  };
  struct Operation {
    DataType type = DataType::float32;
    ReduceOp op = ReduceOp::sum;
    std::size_t count = 0;     ///< as the API counts (see Layout)
    std::uint32_t blocks = 1;  ///< thread blocks of each lane
    /// A block's part of a slice, in plans whose slices are not limited by slots or scratch; 0: whole chunks.
    std::size_t block_slice_bytes = 0;
  };

  /// Compiles and uploads the plan, and loads every kernel on every device: a kernel that is loaded only at its first
  /// launch would wait for running kernels that wait for it.
  static Result<std::unique_ptr<Group>> create(const Plan& plan, const Options& options);

  /// Launches the operation on all ranks' streams. Does not allocate, copy or wait, and may be captured. The ranks'
  /// kernels wait for one another, so all streams must be free to run at the same time.
  Status enqueue(const Operation& operation, std::span<const RankBuffers> buffers,
                 std::span<const cudaStream_t> streams);

  /// Returns an error if a launch that has ended gave up, which says where. The group is unusable from then on.
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
    std::uint32_t blocks_limit = 0;  ///< number of blocks that are certain to run at the same time
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

/// Returns the kernel of a type and operation, or an error that names them. For plans that only copy, any type of the
/// same size will do.
Result<const void*> find_kernel(DataType type, ReduceOp op, Protocol protocol, bool reduces);

}  // namespace strait::cuda
