#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "base/types.hpp"
#include "kernels/kernel_type.hpp"
#include "kernels/launch.hpp"

/// The compiled kernels, as addresses for cudaLaunchKernel. Their one argument is an Exchange, a StraightExchange,
/// OfferedMessages, an Aggregate, a TwoHop or an Add. Kernels that encode data on its way take an EncodedExchange or an
/// EncodedTwoHop and are in wire_format.hpp; those between hosts are in network.hpp.
///
/// A launch has one block for each lane that its messages use (at most max_lanes); in bulk, one block for each `width`
/// lanes. The number of threads of a block is a multiple of 32, at most max_threads, and at least one for each rank on
/// each of the block's lanes. Blocks of all ranks wait for one another, so all blocks of a launch must be able to run
/// at the same time.
namespace strait::kernels {

/// Returns the kernel of an Exchange that copies. `independent`: its messages do not wait for one another; each
/// progresses as its peer does. With lines and packets, all that is sent must then fit into free slots.
const void* exchange_copy_kernel(Protocol protocol, bool independent);
const void* two_hop_copy_kernel(Protocol protocol);
/// Takes a StraightExchange.
const void* straight_copy_kernel();
/// Takes OfferedMessages.
const void* offered_messages_kernel();
/// Takes an Aggregate.
const void* aggregate_copy_kernel(Protocol protocol);
const void* aggregate_reduce_kernel(Protocol protocol, DataType type);
/// Takes an Exchange for which can_be_prompt() holds, and has prompt_threads() threads.
const void* prompt_copy_kernel(Protocol protocol);
const void* prompt_reduce_kernel(Protocol protocol, DataType type);
/// These exist for every type and operation.
const void* exchange_reduce_kernel(Protocol protocol, DataType type, ReduceOp op);
const void* two_hop_reduce_kernel(Protocol protocol, DataType type, ReduceOp op);
/// Returns the kernel of Add, which may have any number of blocks of at most max_threads threads.
const void* add_kernel(DataType type, ReduceOp op);
std::vector<const void*> all_add_kernels();
/// Returns every kernel of a protocol once. They are to be loaded before the first of them waits for a kernel of
/// another rank.
std::vector<const void*> all_kernels(Protocol protocol);
/// From this compute capability on (cuda::compiled_for()), a kernel may begin while its predecessor in the stream still
/// runs, because kernels compiled for it wait for the end of the predecessor themselves.
inline constexpr int least_overlapping_capability = 90;

/// A kernel of piped.cuh, which has piped_threads threads, and the dynamic shared memory that a block needs.
/// cudaFuncSetAttribute(), which permits this much memory, also loads the kernel. Kernels that were compiled for less
/// than least_piped_capability (cuda::compiled_for()) do nothing.
inline constexpr int least_piped_capability = 90;
struct PipedKernel {
  const void* kernel;
  std::uint32_t memory_bytes;
};
/// Returns the kernel of an Exchange or of a TwoHop.
PipedKernel piped_copy_kernel(bool one_hop);
/// `kind` is the call's piped_kernel_type().
PipedKernel piped_reduce_kernel(bool one_hop, KernelType kind);
std::vector<PipedKernel> all_piped_kernels();
/// Returns the shared memory that any of these kernels needs at most. Workstation GPUs have less (99 KB with compute
/// capability 12.0).
std::uint32_t piped_memory_bytes();

/// Launches the probe, where peers can access one another's memory: a kernel that writes to every peer and waits for
/// what they write. It leaves in the mailbox which peers were not reached. All ranks must launch it at about the same
/// time, on fresh arenas. `attempt`: how often it was launched on them before, below 256.
inline constexpr std::uint64_t probe_timeout_ms = 2000;
cudaError_t launch_probe(Ring ring, std::uint32_t attempt, cudaStream_t stream);

/// The kernels of one KernelType. lines[0] is for sums only, lines[1] for any operation; types that share kernels have
/// one kernel for everything. So have the protocols of narrow links, where the link limits the rate and not the
/// arithmetic.
struct TypeKernels {
  struct Pair {
    const void* exchange;
    const void* two_hop;
  };
  Pair lines[2];
  Pair packets;
  Pair bulk;
  Pair piped;
  const void* prompt[2];  ///< [0] lines, for sums only; [1] packets
  const void* aggregate[protocol_count];
  const void* add[2];  ///< as `lines`
};
template <KernelType kind>
TypeKernels kernels_of();

}  // namespace strait::kernels
