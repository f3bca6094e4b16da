#pragma once

#include <span>

#include "base/types.hpp"
#include "executor/plan_on_gpu/program.hpp"

/// The kernels that are built: addresses for cudaLaunchKernel, whose one argument is a Launch.
namespace strait::cuda {

inline constexpr std::uint32_t max_threads = 512;  ///< of a block; simple kernels run with exactly as many

struct Kernel {
  DataType type;
  ReduceOp op;
  Protocol protocol;
  const void* function;
};

std::span<const Kernel> float32_kernels();
std::span<const Kernel> float16_kernels();
std::span<const Kernel> bfloat16_kernels();
std::span<const Kernel> integer_kernels();

}  // namespace strait::cuda
