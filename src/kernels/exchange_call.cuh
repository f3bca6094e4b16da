#pragma once

#include "kernels/lane.cuh"
#include "kernels/lane_manager.cuh"

/// What the kernels of one hop need to know of a call. Here an Exchange provides it; in aggregate.cuh, a part of an
/// Aggregate.
namespace strait::kernels {

__device__ __forceinline__ const Message& message_to(const Exchange& exchange, std::uint32_t peer) {
  return exchange.send[peer];
}
__device__ __forceinline__ const Message& message_from(const Exchange& exchange, std::uint32_t peer) {
  return exchange.receive[peer];
}
/// Returns how many bytes of user memory a message's unit of length stands for: 1, or the size of an element if data is
/// encoded (bulk_encoded.cuh).
template <class Call>
__device__ __forceinline__ constexpr std::uint32_t unit_bytes(const Call& /*call*/) {
  return 1;
}
/// Returns which of the messages' lanes a lane of the ring is.
__device__ __forceinline__ std::uint32_t lane_of(const Exchange& /*exchange*/, std::uint32_t lane) { return lane; }
/// Returns the argument of the kernel.
__device__ __forceinline__ const Exchange& arguments_of(const Exchange& exchange) { return exchange; }
/// Return whether this call is the first thing that a block does in a launch, and whether it is the last.
__device__ __forceinline__ bool begins_launch(const Exchange& /*exchange*/) { return true; }
__device__ __forceinline__ bool ends_launch(const Exchange& /*exchange*/) { return true; }
__device__ __forceinline__ LaneManager lane_manager_of(const Exchange& exchange) {
  return {exchange.ring, exchange.width};
}
__device__ __forceinline__ void mark_start(const Exchange& exchange, std::uint32_t collectives_before) {
  mark_start(exchange.ring, collectives_before);
}

}  // namespace strait::kernels
