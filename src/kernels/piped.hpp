#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.hpp"
#include "kernels/kernel_type.hpp"
#include "kernels/launch.hpp"

/// What the host knows of piped kernels (piped.cuh).
namespace strait::kernels {

inline constexpr std::uint32_t piped_mover_threads = 6 * 32;
inline constexpr std::uint32_t piped_adder_threads = 16 * 32;  ///< they add, or copy what does not leave the rank
inline constexpr std::uint32_t piped_threads = piped_mover_threads + piped_adder_threads;

/// Blocks of a launch that begin together, close to one another on the GPU (a cluster). Without, eight blocks of any
/// launch share ways out of their SMs two by two, and the others have one each: on four H200 these were done up to 13%
/// earlier, and every peer waited for the former. Not measured of fewer blocks.
inline constexpr std::uint32_t piped_cluster = 4, least_clustered_blocks = 16;
/// Of a launch of so many blocks, on a GPU that runs so many in clusters at a time.
constexpr std::uint32_t cluster_of(std::uint32_t blocks, std::uint32_t most_clustered) {
  const bool fits = blocks >= least_clustered_blocks && blocks <= most_clustered && blocks % piped_cluster == 0;
  return fits ? piped_cluster : 1;
}

/// Whether they reduce such contributions: what is sent is what the user's memory holds.
constexpr bool is_piped_reduction(ReduceOp op) { return op != ReduceOp::premul_sum; }
/// Whose kernel does it: sums of the types that have kernels of their own go faster there than all else.
constexpr KernelType piped_kernel_type(DataType type, ReduceOp op, std::uint32_t averaged) {
  return adds_up(type, op, averaged) ? kernel_type(type) : KernelType::others;
}

inline bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }
/// What is sent is overwritten in other chunks than it is cut into, which piped kernels do not wait for.
inline bool overwrites_unevenly(const Exchange& call) {
  for (std::uint32_t peer = 0; peer < call.ring.ranks; ++peer) {
    const Message &send = call.send[peer], &receive = call.receive[peer];
    const bool differ = send.chunk_bytes != receive.chunk_bytes || send.lanes != receive.lanes;
    if (peer != call.ring.rank && receive.bytes != 0 && send.data == receive.data && differ) return true;
  }
  return false;
}
/// Whether they can carry it: that is this rank's alone to say. Of a rank without peers they would add nothing up, for
/// contributions are what their adders wait for.
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
