#pragma once

#include "kernels/bulk_exchange.cuh"
#include "kernels/exchange.cuh"

/// The kernels of Aggregate (launch.hpp): those of an Exchange, over any wire, but every block has a call of its own.
namespace strait::kernels {

/// What a block carries out, in the place of an Exchange.
struct AggregatePart {
  const Ring& ring;
  const Aggregate& aggregate;
  const AggregatedCall& call;
  std::uint32_t pieces;
  std::uint32_t rounds;
  Cast cast;
  static constexpr std::uint32_t width = 1, lead = 1;
};
__device__ __forceinline__ AggregatePart part_of(const Aggregate& aggregate, std::uint32_t index) {
  const AggregatedCall& call = aggregate.calls[index];
  return {aggregate.ring, aggregate, call, call.pieces, call.rounds, call.cast};
}

__device__ __forceinline__ Message message_to(const AggregatePart& part, std::uint32_t peer) {
  const AggregatedCall& call = part.call;
  return {call.send + std::size_t{peer} * call.send_stride_bytes, has(call.to, peer) ? call.bytes : 0, call.chunk_bytes,
          call.lanes, call.call_hash};
}
__device__ __forceinline__ Message message_from(const AggregatePart& part, std::uint32_t peer) {
  const AggregatedCall& call = part.call;
  return {call.receive + std::size_t{peer} * call.receive_stride_bytes, has(call.from, peer) ? call.bytes : 0,
          call.chunk_bytes, call.lanes, call.call_hash};
}
__device__ __forceinline__ std::uint32_t lane_of(const AggregatePart& part, std::uint32_t lane) {
  return lane - part.call.first_lane;
}

/// All calls of the launch, as if they had started one after another.
__device__ __forceinline__ void mark_start(const Aggregate& aggregate, std::uint32_t collectives_before) {
  if (!is_marker()) return;
  note_begun(aggregate.ring);
  std::uint32_t number = collectives_before;
  for (std::uint32_t i = 0; i < aggregate.count; ++i) {
    ++number;
    mark_call(aggregate.ring.mailbox->started[number % kept_marks], number, aggregate.calls[i].call);
  }
  store_count(&aggregate.ring.launch_counts->collectives, number);
}
__device__ __forceinline__ void mark_start(const AggregatePart& part, std::uint32_t collectives_before) {
  mark_start(part.aggregate, collectives_before);
}

/// Whether this block has a call. If not, it has said so already that the launch has begun, and ended.
__device__ __forceinline__ bool has_call(const Aggregate& aggregate) {
  if (aggregate.call_of_lane[blockIdx.x] != Aggregate::no_call) return true;
  mark_start(aggregate, begin_launch(aggregate.ring));
  tell_finished(aggregate.ring);
  return false;
}

template <class W>
__global__ void __launch_bounds__(max_threads, 1) aggregate_copy(const __grid_constant__ Aggregate aggregate) {
  if (!has_call(aggregate)) return;
  const AggregatePart part = part_of(aggregate, aggregate.call_of_lane[blockIdx.x]);
  if constexpr (W::flags_slots) {
    bulk_copy(part, shared_memory<BulkExchangeRound>());
  } else {
    flagged_copy<W, false>(part, shared_memory<ExchangeRound>());
  }
}

/// For every operation: what there is to add up is too little, or comes too slowly, for a kernel of sums alone to be
/// faster.
template <class W, DataType type>
__global__ void __launch_bounds__(max_threads, 1) aggregate_reduce(const __grid_constant__ Aggregate aggregate) {
  if (!has_call(aggregate)) return;
  const AggregatePart part = part_of(aggregate, aggregate.call_of_lane[blockIdx.x]);
  const Operation operation{part.call.op, part.ring.averaged, part.call.premul_scalar};
  if constexpr (W::flags_slots) {
    bulk_reduce<type>(part, operation, shared_memory<BulkExchangeRound>());
  } else {
    flagged_reduce<W, type, false>(part, operation, shared_memory<ExchangeRound>());
  }
}

}  // namespace strait::kernels
