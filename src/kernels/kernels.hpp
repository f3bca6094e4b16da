#pragma once

#include <span>

#include "base/types.hpp"
#include "kernels/launch.hpp"

/// The kernels that are built: addresses for cudaLaunchKernel, whose one argument is an Exchange or a TwoHop. A launch
/// has one block for each lane that its messages use (at most max_lanes), of a multiple of 32 and at most max_threads
/// threads, at least one for each rank. Blocks of all ranks wait for one another, so all must be able to run.
namespace strait::kernels {

const void* exchange_copy_kernel();
const void* two_hop_copy_kernel();
/// For every type and operation.
const void* exchange_reduce_kernel(DataType type, ReduceOp op);
const void* two_hop_reduce_kernel(DataType type, ReduceOp op);
/// Every kernel once, to be loaded before the first one waits for another.
std::span<const void* const> all_kernels();

/// The entries of one element type: [0] sums, [1] anything.
struct TypeKernels {
  const void* exchange[2];
  const void* two_hop[2];
};
template <DataType type>
TypeKernels kernels_of();

}  // namespace strait::kernels
