#pragma once

#include "kernels/lane.cuh"
#include "kernels/minder.cuh"

/// What the kernels of one hop ask of a call: here an Exchange answers, in aggregate.cuh a part of an Aggregate.
namespace strait::kernels {

__device__ __forceinline__ const Message& message_to(const Exchange& exchange, std::uint32_t peer) {
  return exchange.send[peer];
}
__device__ __forceinline__ const Message& message_from(const Exchange& exchange, std::uint32_t peer) {
  return exchange.receive[peer];
}
/// What one of a message's bytes stands for in the user's memory: itself, but of what is encoded an element
/// (bulk_encoded.cuh).
template <class Call>
__device__ __forceinline__ constexpr std::uint32_t unit_bytes(const Call& /*call*/) {
  return 1;
}
/// Which of the messages' lanes a lane of the ring is.
__device__ __forceinline__ std::uint32_t lane_of(const Exchange& /*exchange*/, std::uint32_t lane) { return lane; }
/// What its launch was given.
__device__ __forceinline__ const Exchange& arguments_of(const Exchange& exchange) { return exchange; }
/// Whether it is the first thing that a block does in a launch, and the last.
__device__ __forceinline__ bool begins_launch(const Exchange& /*exchange*/) { return true; }
__device__ __forceinline__ bool ends_launch(const Exchange& /*exchange*/) { return true; }
__device__ __forceinline__ Minder minder_of(const Exchange& exchange) { return {exchange.ring, exchange.width}; }
__device__ __forceinline__ void mark_start(const Exchange& exchange, std::uint32_t collectives_before) {
  mark_start(exchange.ring, collectives_before);
}

}  // namespace strait::kernels
