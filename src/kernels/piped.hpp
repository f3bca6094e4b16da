#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.hpp"
#include "kernels/kernel_type.hpp"
#include "kernels/launch.hpp"

/// What the host needs to know about piped kernels (piped.cuh).
namespace strait::kernels {

inline constexpr std::uint32_t piped_mover_threads = 6 * 32;
/// These warps add, or copy what does not leave the rank.
inline constexpr std::uint32_t piped_adder_threads = 16 * 32;
inline constexpr std::uint32_t piped_threads = piped_mover_threads + piped_adder_threads;

/// Thread blocks of a cluster, and the least blocks of a launch that uses clusters. Without clusters, eight blocks of
/// any launch share the output paths of their SMs in pairs, whereas the others have one each. On four H200 the others
/// finished up to 13% earlier, and every peer waited for these eight. Smaller launches were not measured.
inline constexpr std::uint32_t piped_cluster = 4, least_clustered_blocks = 16;
/// Returns the cluster size for a launch of `blocks` blocks on a GPU that can run `most_clustered` of them in clusters
/// at the same time; 1: no clusters.
constexpr std::uint32_t cluster_of(std::uint32_t blocks, std::uint32_t most_clustered) {
  const bool fits = blocks >= least_clustered_blocks && blocks <= most_clustered && blocks % piped_cluster == 0;
  return fits ? piped_cluster : 1;
}

/// Returns whether piped kernels can reduce with this operation: contributions must be sent as they lie in user memory.
constexpr bool is_piped_reduction(ReduceOp op) { return op != ReduceOp::premul_sum; }
/// Returns the type of kernel for a reduction. Sums of the types that have kernels of their own are faster in these;
/// everything else uses the general kernel.
constexpr KernelType piped_kernel_type(DataType type, ReduceOp op, std::uint32_t averaged) {
  return adds_up(type, op, averaged) ? kernel_type(type) : KernelType::others;
}

inline bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }
/// Returns whether an in-place call cuts what it sends differently from what it receives into the same memory. Piped
/// kernels do not order such accesses.
inline bool overwrites_unevenly(const Exchange& call) {
  for (std::uint32_t peer = 0; peer < call.ring.ranks; ++peer) {
    const Message &send = call.send[peer], &receive = call.receive[peer];
    const bool differ = send.chunk_bytes != receive.chunk_bytes || send.lanes != receive.lanes;
    if (peer != call.ring.rank && receive.bytes != 0 && send.data == receive.data && differ) return true;
  }
  return false;
}
/// Returns whether piped kernels can carry a call. Each rank decides this for itself; peers see no difference. A rank
/// without peers cannot use them, because their adders wait for contributions of peers.
inline bool can_be_piped(const Exchange& call) {
  const auto is_well = [](const Message& message) { return message.bytes == 0 || is_aligned(message.data); };
  return call.ring.ranks > 1 && call.ring.has_async_copies && call.cast == Cast::single && call.lead <= 1 &&
         std::all_of(call.send, call.send + call.ring.ranks, is_well) &&
         std::all_of(call.receive, call.receive + call.ring.ranks, is_well) && !overwrites_unevenly(call);
}
inline bool can_be_piped(const TwoHop& call) {
  return call.ring.has_async_copies && call.results == Cast::single && is_aligned(call.input) &&
         is_aligned(call.output);
}

}  // namespace strait::kernels
