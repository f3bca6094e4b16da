#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "base/types.hpp"
#include "kernels/kernel_type.hpp"
#include "kernels/launch.hpp"

/// The kernels that are built: addresses for cudaLaunchKernel, whose one argument is an Exchange, a StraightExchange,
/// OfferedMessages, an Aggregate or a TwoHop (or an Add). Those that encode on the way take an EncodedExchange or an
/// EncodedTwoHop and are in wire_format.hpp; those between hosts are in network.hpp. A launch has one block for each
/// lane that its messages use (at most max_lanes), or of bulk for each `width` of them, of a multiple of 32 and at most
/// max_threads threads, at least one for each rank on each of its lanes. Blocks of all ranks wait for one another, so
/// all must be able to run.
namespace strait::kernels {

/// `apart`: its messages do not wait for one another, but go on as each one's own peer does. What is sent by protocols
/// whose data bear flags must then fit into free slots.
const void* exchange_copy_kernel(Protocol protocol, bool apart);
const void* two_hop_copy_kernel(Protocol protocol);
/// Of a StraightExchange.
const void* straight_copy_kernel();
/// Of OfferedMessages.
const void* offered_messages_kernel();
/// Of an Aggregate.
const void* aggregate_copy_kernel(Protocol protocol);
const void* aggregate_reduce_kernel(Protocol protocol, DataType type);
/// Of an Exchange that can_be_prompt(), of prompt_threads().
const void* prompt_copy_kernel(Protocol protocol);
const void* prompt_reduce_kernel(Protocol protocol, DataType type);
/// For every type and operation.
const void* exchange_reduce_kernel(Protocol protocol, DataType type, ReduceOp op);
const void* two_hop_reduce_kernel(Protocol protocol, DataType type, ReduceOp op);
/// The kernel of Add, of any number of blocks of at most max_threads threads.
const void* add_kernel(DataType type, ReduceOp op);
std::vector<const void*> all_add_kernels();
/// Every kernel of a protocol once, to be loaded before the first one waits for another.
std::vector<const void*> all_kernels(Protocol protocol);
/// Compiled for this and more (cuda::compiled_for()), kernels may begin while the one before still runs, for they wait
/// for its end by themselves.
inline constexpr int least_overlapping_capability = 90;

/// The kernels of piped.cuh, of piped_threads, and what a launch must give a block besides. Loaded by
/// cudaFuncSetAttribute(), which allows them so much. Compiled for less than least_piped_capability
/// (cuda::compiled_for()), they do nothing.
inline constexpr int least_piped_capability = 90;
struct PipedKernel {
  const void* kernel;
  std::uint32_t memory_bytes;
};
/// Of an Exchange, or of a TwoHop.
PipedKernel piped_copy_kernel(bool one_hop);
/// Of a piped_kernel_type().
PipedKernel piped_reduce_kernel(bool one_hop, KernelType kind);
std::vector<PipedKernel> all_piped_kernels();
/// What any of them takes at most. GPUs for workstations have less (99 KB with compute capability 12.0).
std::uint32_t piped_memory_bytes();

/// Where peers reach one another's memory: a kernel that writes to every peer and waits for what they write. It leaves
/// in the mailbox for whom that did not work. All ranks launch it at about the same time, on fresh arenas.
inline constexpr std::uint64_t probe_timeout_ms = 2000;
cudaError_t launch_probe(Ring ring, cudaStream_t stream);

/// The entries of one KernelType. Lines: [0] sums, [1] anything; where types share kernels one for
/// everything. So have the protocols of narrow links: there the link decides, and not the arithmetic.
struct TypeKernels {
  struct Pair {
    const void* exchange;
    const void* two_hop;
  };
  Pair lines[2];
  Pair packets;
  Pair bulk;
  Pair piped;
  const void* prompt[2];  ///< lines, which only add up, and packets
  const void* aggregate[protocol_count];
  const void* add[2];  ///< as lines
};
template <KernelType kind>
TypeKernels kernels_of();

}  // namespace strait::kernels
