#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "base/types.hpp"
#include "kernels/launch.hpp"

/// The kernels that are built: addresses for cudaLaunchKernel, whose one argument is an Exchange or a TwoHop (or an
/// Add). A launch has one block for each lane that its messages use (at most max_lanes), or of bulk for each `width` of
/// them, of a multiple of 32 and at most max_threads threads, at least one for each rank on each of its lanes. Blocks
/// of all ranks wait for one another, so all must be able to run.
namespace strait::kernels {

const void* exchange_copy_kernel(Wire wire);
const void* two_hop_copy_kernel(Wire wire);
/// For every type and operation.
const void* exchange_reduce_kernel(Wire wire, DataType type, ReduceOp op);
const void* two_hop_reduce_kernel(Wire wire, DataType type, ReduceOp op);
/// The kernel of Add, of any number of blocks of at most max_threads threads.
const void* add_kernel(DataType type, ReduceOp op);
std::vector<const void*> all_add_kernels();
/// Every kernel of a wire once, to be loaded before the first one waits for another.
std::vector<const void*> all_kernels(Wire wire);

/// Where peers reach one another's memory: a kernel that writes to every peer and waits for what they write. It leaves
/// in the mailbox for whom that did not work. All ranks launch it at about the same time, on fresh arenas.
inline constexpr std::uint64_t probe_timeout_ms = 2000;
cudaError_t launch_probe(Ring ring, cudaStream_t stream);

/// The entries of one element type. Lines: [0] sums, [1] anything. The narrow wires have one for everything: there the
/// link decides, and not the arithmetic.
struct TypeKernels {
  struct Pair {
    const void* exchange;
    const void* two_hop;
  };
  Pair lines[2];
  Pair packets;
  Pair bulk;
  const void* add[2];  ///< as lines
};
template <DataType type>
TypeKernels kernels_of();

}  // namespace strait::kernels
