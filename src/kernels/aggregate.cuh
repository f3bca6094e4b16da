#pragma once

#include "kernels/bulk_exchange.cuh"
#include "kernels/exchange.cuh"

/// The kernels of Aggregate (launch.hpp): as those of an Exchange, over any protocol, but each block has a call of its
/// own.
namespace strait::kernels {

/// What a block carries out in place of an Exchange: a call of one hop, or one hop of a call.
struct AggregatePart {
  const Ring& ring;
  const Aggregate& aggregate;
  const AggregatedCall& call;
  bool is_second;  ///< whether this is the second hop
  std::uint32_t pieces;
  std::uint32_t rounds;
  Cast cast;
  std::uint32_t width;
  std::uint32_t lead;
  static constexpr std::uint32_t stagger_ns = 0;
};
__device__ __forceinline__ bool takes_two_hops(const AggregatedCall& call) { return call.whole_bytes != 0; }
__device__ __forceinline__ AggregatePart part_of(const Aggregate& aggregate, const AggregatedCall& call,
                                                 bool is_second = false) {
  const Cast cast = takes_two_hops(call) && !is_second ? Cast::single : call.cast;
  const std::uint32_t peers = ~(1u << aggregate.ring.rank);
  const bool both = takes_two_hops(call) || ((call.to & peers) != 0 && (call.from & peers) != 0);
  return {aggregate.ring, aggregate, call, is_second, call.pieces, call.rounds, cast, call.width, both ? 1u : 0u};
}

/// Returns the length of a call's message, or of the slice of a rank.
__device__ __forceinline__ std::uint32_t bytes_of(const AggregatedCall& call, std::uint32_t rank) {
  if (!takes_two_hops(call)) return call.bytes;
  const std::uint32_t begin = rank * call.bytes;
  if (begin >= call.whole_bytes) return 0;
  const std::uint32_t left = call.whole_bytes - begin;
  return left < call.bytes ? left : call.bytes;
}
__device__ __forceinline__ Message message(const AggregatedCall& call, std::byte* data, bool exists,
                                           std::uint32_t rank) {
  return {data, exists ? bytes_of(call, rank) : 0, call.chunk_bytes, call.lanes, call.call_hash};
}
__device__ __forceinline__ Message message_to(const AggregatePart& part, std::uint32_t peer) {
  const AggregatedCall& call = part.call;
  if (part.is_second) return message(call, call.receive, true, part.ring.rank);
  return message(call, call.send + std::size_t{peer} * call.send_stride_bytes, has(call.to, peer), peer);
}
__device__ __forceinline__ Message message_from(const AggregatePart& part, std::uint32_t peer) {
  const AggregatedCall& call = part.call;
  if (!part.is_second)
    return message(call, call.receive + std::size_t{peer} * call.receive_stride_bytes, has(call.from, peer),
                   part.ring.rank);
  std::byte* const first = call.receive - std::size_t{part.ring.rank} * call.bytes;
  return message(call, first + std::size_t{peer} * call.bytes, true, peer);
}
__device__ __forceinline__ bool begins_launch(const AggregatePart& part) { return !part.is_second; }
__device__ __forceinline__ bool ends_launch(const AggregatePart& part) {
  return part.is_second || !takes_two_hops(part.call);
}
__device__ __forceinline__ const Aggregate& arguments_of(const AggregatePart& part) { return part.aggregate; }
__device__ __forceinline__ std::uint32_t lane_of(const AggregatePart& part, std::uint32_t lane) {
  return lane - part.call.first_lane;
}
__device__ __forceinline__ LaneManager lane_manager_of(const AggregatePart& part) {
  const AggregatedCall& call = part.call;
  return {part.ring, call.width, blockIdx.x - call.first_block, call.blocks, call.first_lane};
}

/// Records the start of all calls of the launch, as if they had started one after another.
__device__ __forceinline__ void mark_start(const Aggregate& aggregate, std::uint32_t collectives_before) {
  if (!is_marker()) return;
  note_begun(aggregate.ring);
  std::uint32_t number = collectives_before;
  for (std::uint32_t i = 0; i < aggregate.count; ++i) {
    ++number;
    mark_call(aggregate.ring.launch_counts->started.calls[number % kept_marks], number, aggregate.calls[i].call);
  }
  store_count(&aggregate.ring.launch_counts->collectives, number);
}
__device__ __forceinline__ void mark_start(const AggregatePart& part, std::uint32_t collectives_before) {
  mark_start(part.aggregate, collectives_before);
}

/// Returns whether this block has a call. If not, it has already recorded that the launch has begun, and that the block
/// has ended.
__device__ __forceinline__ bool has_call(const Aggregate& aggregate) {
  if (aggregate.call_index_of_block[blockIdx.x] != Aggregate::no_call) return true;
  mark_start(aggregate, begin_launch(aggregate.ring));
  count_finished_block(aggregate.ring);
  return false;
}

template <class P>
__device__ __forceinline__ void copy_aggregated(const AggregatePart& part) {
  if constexpr (P::flags_slots) {
    bulk_copy(part, shared_memory<BulkExchangeRound>());
  } else {
    flagged_copy<P, false>(part, shared_memory<ExchangeRound>());
  }
}

template <class P>
__global__ void __launch_bounds__(max_threads, 1) aggregate_copy(const __grid_constant__ Aggregate aggregate) {
  if (!has_call(aggregate)) return;
  copy_aggregated<P>(part_of(aggregate, aggregate.calls[aggregate.call_index_of_block[blockIdx.x]]));
}

/// For every operation: there is too little to add up, or it arrives too slowly, for a kernel with only sums to be
/// faster. With two hops a block passes on the sums of its own lanes, and waits for no other block.
template <class P, KernelType kind>
__global__ void __launch_bounds__(max_threads, 1) aggregate_reduce(const __grid_constant__ Aggregate aggregate) {
  if (!has_call(aggregate)) return;
  const AggregatedCall& call = aggregate.calls[aggregate.call_index_of_block[blockIdx.x]];
  const AggregatePart part = part_of(aggregate, call);
  const Operation operation{call.op, call.type, part.ring.averaged, call.premul_scalar};
  bool done = false;
  if constexpr (P::flags_slots) {
    done = bulk_reduce<type_of(kind)>(part, operation, shared_memory<BulkExchangeRound>());
  } else {
    done = flagged_reduce<P, type_of(kind), false>(part, operation, shared_memory<ExchangeRound>());
  }
  if (done && takes_two_hops(call)) copy_aggregated<P>(part_of(aggregate, call, true));
}

}  // namespace strait::kernels
