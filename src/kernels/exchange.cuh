#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/exchange_call.cuh"
#include "kernels/lane.cuh"

/// The kernels of Exchange (launch.hpp) over wires whose data bears flags, lines and packets: one hop, as a copy and as
/// a reduction. Block l serves lane l.
namespace strait::kernels {

/// What the threads of a block share in a round of an exchange. Chunks by the position of their peer (position_of).
struct ExchangeRound {
  Outgoing outgoing[max_ranks];
  Incoming incoming[max_ranks];
  Own own;
  int failed;
  Outgoing first[max_ranks];  ///< what the first round sends: where from, and how much
};

/// By the thread that looks after a peer: what its first chunk is.
__device__ __forceinline__ void name_first(const Message& send, std::uint32_t lane, std::uint32_t position,
                                           ExchangeRound& shared) {
  std::size_t offset = 0;
  shared.first[position].bytes = chunk_of(send, lane, 0, offset);
  shared.first[position].source = send.data + offset;
}

/// By the thread that looks after `peer`: what this round sends it.
template <class W, class Call>
__device__ __forceinline__ void prepare_send(const Call& exchange, const Message& send, Lane<W>& lane,
                                             std::uint32_t peer, std::uint32_t round, ExchangeRound& shared) {
  const Ring& ring = exchange.ring;
  if (peer == ring.rank) return;
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(send, lane_of(exchange, blockIdx.x), round, offset);
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  Outgoing outgoing;
  if (!lane.next_slot(send.data + offset, bytes, send.call_hash, outgoing)) shared.failed = 1;
  if (exchange.cast == Cast::single || position == 0) shared.outgoing[position] = outgoing;
}

/// Likewise, what comes from it, or of this rank's own.
template <class W, class Call>
__device__ __forceinline__ void prepare_receive(const Call& exchange, const Message& send, const Message& receive,
                                                Lane<W>& lane, std::uint32_t peer, std::uint32_t round,
                                                ExchangeRound& shared) {
  const Ring& ring = exchange.ring;
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(receive, lane_of(exchange, blockIdx.x), round, offset);
  if (peer == ring.rank) {
    shared.own = {send.data + offset, receive.data + offset, bytes};
  } else {
    lane.expect(receive.data + offset, bytes, receive.call_hash,
                shared.incoming[position_of(peer, ring.rank, ring.ranks)]);
  }
}

/// Before any thread takes what comes in the first round.
__device__ __forceinline__ void receive_nothing(const Ring& ring, std::uint32_t peer, ExchangeRound& shared) {
  if (peer == ring.rank)
    shared.own.bytes = 0;
  else
    shared.incoming[position_of(peer, ring.rank, ring.ranks)].bytes = 0;
}

/// `Call`: an Exchange, or what stands for one. `combine()` takes what comes; false: gave up. `apart`: all is sent
/// before the first that comes is waited for. False, to all threads: gave up.
template <class W, bool apart, class Call, class Contribution, class Combine>
__device__ __forceinline__ bool run_exchange(const Call& exchange, ExchangeRound& shared, Contribution&& contribution,
                                             Combine&& combine) {
  if (begins_launch(exchange)) fetch_arguments(arguments_of(exchange));
  const Ring& ring = exchange.ring;
  const bool minds_a_peer = threadIdx.x < ring.ranks;
  const std::uint32_t peer = minds_a_peer ? threadIdx.x : 0;
  const bool has_peer = minds_a_peer && peer != ring.rank;
  const std::uint32_t position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
  const std::uint32_t copies = exchange.cast == Cast::multi ? 1 : ring.ranks - 1;
  // What the arguments alone decide comes before the wait, while the launch before this one still runs.
  const Message send = message_to(exchange, peer), receive = message_from(exchange, peer);
  Lane<W> lane(ring, peer, exchange.cast);
  if (has_peer) name_first(send, lane_of(exchange, blockIdx.x), position, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  const std::byte* const pushed_first = first_pushed<W>(shared.first, copies, exchange.pieces);
  const std::uint32_t before = begins_launch(exchange) ? begin_launch(ring) : 0;
  if (pushed_first != nullptr) prefetch(pushed_first);
  const bool goes_on = minds_a_peer && lane.resume();
  if (begins_launch(exchange)) mark_start(exchange, before);
  if (minds_a_peer && !goes_on) shared.failed = 1;
  bool gives_up = false;
  const std::uint32_t lead = apart ? exchange.rounds : 0, rounds = exchange.rounds + lead;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    if (goes_on) {
      prepare_send(exchange, send, lane, peer, round, shared);
      if (apart && round < exchange.rounds)
        receive_nothing(ring, peer, shared);
      else
        prepare_receive(exchange, send, receive, lane, peer, round - lead, shared);
    }
    const bool has_stale = meet<W>(goes_on && lane.takes_stale_slots());
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.outgoing, copies);
      __syncthreads();
    }
    push<W>(shared.outgoing, copies, exchange.pieces, contribution);
    // In place, what comes overwrites what was sent.
    __syncthreads();
    const bool done = combine();
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!has_peer || round + 1 == rounds) continue;
    lane.give_back();
  }
  // A lane on which an earlier launch gave up stays so, though this one may have had nothing to do.
  if (has_peer && (goes_on || gives_up)) lane.save(gives_up);
  if (gives_up || ends_launch(exchange)) tell_finished(ring);
  return !gives_up;
}

template <class W, bool apart, class Call>
__device__ __forceinline__ bool flagged_copy(const Call& exchange, ExchangeRound& shared) {
  const auto as_it_is = [](const Granule& value) { return value; };
  return run_exchange<W, apart>(exchange, shared, as_it_is, [&] {
    copy_own<W>(shared.own, exchange.pieces);
    return collect<W>(exchange.ring, shared.incoming, exchange.ring.ranks - 1, exchange.pieces);
  });
}

template <class W, DataType type, bool sum_only, class Call>
__device__ __forceinline__ bool flagged_reduce(const Call& exchange, const Operation& operation,
                                               ExchangeRound& shared) {
  const auto contribute = [&](const Granule& value) { return contribution<type, sum_only>(value, operation); };
  return run_exchange<W, false>(exchange, shared, contribute, [&] {
    if (shared.own.bytes == 0) return true;
    return reduce_exchanged<W, type, sum_only>(exchange, shared.own, shared.incoming, operation, contribute);
  });
}

template <class W, bool apart = false>
__global__ void __launch_bounds__(max_threads, 1) exchange_copy(const __grid_constant__ Exchange exchange) {
  flagged_copy<W, apart>(exchange, shared_memory<ExchangeRound>());
}

template <class W, DataType type, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) exchange_reduce(const __grid_constant__ Exchange exchange) {
  const Operation operation{exchange.op, exchange.ring.averaged, exchange.premul_scalar};
  flagged_reduce<W, type, sum_only>(exchange, operation, shared_memory<ExchangeRound>());
}

}  // namespace strait::kernels
