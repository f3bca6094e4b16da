#pragma once

#include <span>

#include "base/types.hpp"
#include "executor/plan_on_gpu/program.hpp"

/// The compiled kernels, as addresses for cudaLaunchKernel. Each takes one Launch as its argument.
namespace strait::cuda {

/// Threads of a block; kernels of the simple protocol have exactly this many.
inline constexpr std::uint32_t max_threads = 512;

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
