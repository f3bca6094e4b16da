#pragma once

#include "kernels/lane.cuh"

/// What the kernels of one hop ask of a call: here an Exchange answers, in aggregate.cuh a part of an Aggregate.
namespace strait::kernels {

__device__ __forceinline__ const Message& message_to(const Exchange& exchange, std::uint32_t peer) {
  return exchange.send[peer];
}
__device__ __forceinline__ const Message& message_from(const Exchange& exchange, std::uint32_t peer) {
  return exchange.receive[peer];
}
/// Which of the messages' lanes a lane of the ring is.
__device__ __forceinline__ std::uint32_t lane_of(const Exchange& /*exchange*/, std::uint32_t lane) { return lane; }
__device__ __forceinline__ void mark_start(const Exchange& exchange, std::uint32_t collectives_before) {
  mark_start(exchange.ring, collectives_before);
}

}  // namespace strait::kernels
