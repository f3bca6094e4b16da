#pragma once

#include <type_traits>

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/exchange_call.cuh"
#include "kernels/first_push.cuh"
#include "kernels/granule_reductions.cuh"
#include "kernels/granules.cuh"
#include "kernels/lane.cuh"
#include "kernels/lane_manager.cuh"
#include "kernels/stagger.cuh"

/// The kernels of Exchange (launch.hpp) in bulk: one hop, as a copy and as a reduction. A block may serve several lanes
/// (lane_manager.cuh).
namespace strait::kernels {

/// What the threads of a block share in a round of an exchange. For each of the block's lanes, chunks are indexed by
/// the position of their peer (position_of()).
struct BulkExchangeRound {
  Outgoing outgoing[max_width * max_ranks];
  Incoming incoming[max_width * max_ranks];
  OwnPart own[max_width];
  int failed;
  Outgoing first[max_ranks];  ///< what the first round sends: only the source and the length
};

/// Sets the source and the length of a peer's first chunk. Called by the thread that manages the peer on the block's
/// first lane.
template <class Call>
__device__ __forceinline__ void name_first(const Call& exchange, const Message& send, const LaneManager& manager,
                                           BulkExchangeRound& shared) {
  std::size_t offset = 0;
  shared.first[manager.position].bytes = chunk_of(send, lane_of(exchange, manager.lane), 0, offset);
  shared.first[manager.position].source = send.data + offset * unit_bytes(exchange);
}

/// Sets what this round sends to a peer, and claims the slot. Called by the thread that manages the peer.
template <class Call>
__device__ __forceinline__ void prepare_send(const Call& exchange, const Message& send, Lane<Bulk>& lane,
                                             const LaneManager& manager, std::uint32_t round,
                                             BulkExchangeRound& shared) {
  if (!manager.has_peer) return;
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(send, lane_of(exchange, manager.lane), round, offset);
  Outgoing outgoing;
  const std::byte* const source = send.data + offset * unit_bytes(exchange);
  if (!lane.next_slot(source, bytes, send.call_hash, outgoing, manager.lane)) shared.failed = 1;
  if constexpr (std::is_same_v<Call, Exchange>)
    if (exchange.label != 0 && outgoing.bytes != 0)
      store_word(outgoing.slot_flag + label_distance, slot_label(exchange.label, bytes));
  if (exchange.cast == Cast::single) {
    shared.outgoing[manager.chunk] = outgoing;
  } else if (manager.position == 0) {
    shared.outgoing[manager.nth] = outgoing;
  }
}

/// Sets what this round receives from a peer, or what this rank copies or reduces of its own. Called by the same
/// thread.
template <class Call>
__device__ __forceinline__ void prepare_receive(const Call& exchange, const Message& send, const Message& receive,
                                                Lane<Bulk>& lane, const LaneManager& manager, std::uint32_t round,
                                                BulkExchangeRound& shared) {
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(receive, lane_of(exchange, manager.lane), round, offset);
  offset *= unit_bytes(exchange);
  if (!manager.has_peer) {
    shared.own[manager.nth] = {send.data + offset, receive.data + offset, bytes};
  } else {
    lane.expect(receive.data + offset, bytes, receive.call_hash, shared.incoming[manager.chunk]);
  }
}

/// Sets that nothing is received, for the rounds before receiving begins.
__device__ __forceinline__ void receive_nothing(const LaneManager& manager, BulkExchangeRound& shared) {
  if (!manager.has_peer) {
    shared.own[manager.nth].bytes = 0;
  } else {
    shared.incoming[manager.chunk].bytes = 0;
  }
}

/// Carries out an exchange in bulk. `Call` is an Exchange or a type with the same interface (exchange_call.cuh).
/// `send_chunks(count)` sends `shared.outgoing`; `combine()` processes what is received, and returns false if it gave
/// up. Sending is Exchange::lead rounds ahead of receiving, so that the reads of a block do not wait for its writes to
/// arrive; in place, received data overwrites what an earlier round has sent. Returns false, to all threads, if the
/// block gave up.
template <class Call, class SendChunks, class Combine>
__device__ __forceinline__ bool run_bulk_exchange(const Call& exchange, BulkExchangeRound& shared,
                                                  SendChunks&& send_chunks, Combine&& combine) {
  if (begins_launch(exchange)) fetch_arguments(arguments_of(exchange));
  const Ring& ring = exchange.ring;
  const LaneManager manager = lane_manager_of(exchange);
  const std::uint32_t copies = exchange.cast == Cast::multi ? 1 : ring.ranks - 1;
  // What depends only on the arguments precedes the wait, while the previous launch still runs.
  const Message send = message_to(exchange, manager.peer), receive = message_from(exchange, manager.peer);
  Lane<Bulk> lane(ring, manager.peer, exchange.cast, manager.lane);
  if (manager.has_peer && manager.nth == 0) name_first(exchange, send, manager, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  const FirstPush<Bulk> first(shared.first, copies, exchange.pieces);
  const std::uint32_t before = begins_launch(exchange) ? begin_launch(ring) : 0;
  first.prefetch();
  const bool goes_on = manager.manages && lane.resume();
  if (begins_launch(exchange)) mark_start(exchange, before);
  if (manager.manages && !goes_on) shared.failed = 1;
  bool gives_up = false;
  const std::uint32_t last = exchange.rounds + exchange.lead - 1;
  stagger(exchange.stagger_ns);
  for (std::uint32_t round = 0; round <= last; ++round) {
    const auto prepare = [&] {
      prepare_send(exchange, send, lane, manager, round, shared);
      if (round < exchange.lead) {
        receive_nothing(manager, shared);
      } else {
        prepare_receive(exchange, send, receive, lane, manager, round - exchange.lead, shared);
      }
      if (manager.has_peer && !wait_for_chunk(ring, shared.incoming[manager.chunk], manager.lane)) shared.failed = 1;
    };
    if (goes_on) out_of_line(prepare);
    __syncthreads();
    gives_up = shared.failed != 0;
    if (gives_up) break;
    const bool done = run_round(
        ring, [&] { send_chunks(copies * exchange.width); }, combine, [] {});
    const Notice sent(shared.outgoing, copies * exchange.width);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (manager.has_peer && round != last) lane.give_back();
    fence_and_publish(sent);
  }
  if (manager.has_peer) lane.save(gives_up);
  if (gives_up || ends_launch(exchange)) count_finished_block(ring);
  return !gives_up;
}

template <class Call>
__device__ __forceinline__ bool bulk_copy(const Call& exchange, BulkExchangeRound& shared) {
  const auto send_chunks = [&](std::uint32_t count) { push_all(shared.outgoing, count, exchange.pieces); };
  return run_bulk_exchange(exchange, shared, send_chunks, [&] {
    take_all(exchange.ring, shared.own, shared.incoming, exchange.width, exchange.pieces);
    return true;
  });
}

template <DataType type, class Call>
__device__ __forceinline__ bool bulk_reduce(const Call& exchange, const Operation& operation,
                                            BulkExchangeRound& shared) {
  const Ring& ring = exchange.ring;
  const auto contribute = [operation](const Granule& value) { return contribution<type, false>(value, operation); };
  const std::uint32_t peers = ring.ranks - 1, width = exchange.width;
  const auto send_chunks = [&](std::uint32_t count) {
    push_contributions<type>(shared.outgoing, count, exchange.pieces, operation);
  };
  return run_bulk_exchange(exchange, shared, send_chunks, [&] {
    const auto pass_on = [](std::uint32_t, const Segment&, const auto&) {};
    if (sum_all<type>(ring, shared.own, shared.incoming, width, exchange.pieces, operation, true, pass_on)) return true;
    // Not for the calls of a group, which are short, nor for types that have kernels of their own, which are fast
    // enough without it.
    if constexpr (std::is_same_v<Call, Exchange> && type == other_types)
      if (combine_all(ring, shared.own, shared.incoming, width, exchange.pieces, operation)) return true;
    for (std::uint32_t nth = 0; nth < width; ++nth) {
      const OwnPart& own = shared.own[nth];
      if (own.bytes == 0) continue;
      const auto reduce = [=, call = &exchange, incoming = shared.incoming + nth * peers] {
        return reduce_exchanged<Bulk, type, false>(*call, own, incoming, operation, contribute);
      };
      if (!out_of_line(reduce)) return false;
    }
    return true;
  });
}

/// A template only so that a header may define it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) bulk_exchange_copy(const __grid_constant__ Exchange exchange) {
  bulk_copy(exchange, shared_memory<BulkExchangeRound>());
}

template <KernelType kind>
__global__ void __launch_bounds__(max_threads, 1) bulk_exchange_reduce(const __grid_constant__ Exchange exchange) {
  const Operation operation{exchange.op, exchange.type, exchange.ring.averaged, exchange.premul_scalar};
  bulk_reduce<type_of(kind)>(exchange, operation, shared_memory<BulkExchangeRound>());
}

}  // namespace strait::kernels
