#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/exchange_call.cuh"
#include "kernels/first_push.cuh"
#include "kernels/lane.cuh"
#include "kernels/receive.cuh"

/// The kernels of Exchange (launch.hpp) over protocols that send flags with the data (lines and packets): one hop, as a
/// copy and as a reduction. Block l serves lane l.
namespace strait::kernels {

/// What the threads of a block share in a round of an exchange. Chunks are indexed by the position of their peer
/// (position_of()).
struct ExchangeRound {
  Outgoing outgoing[max_ranks];
  Incoming incoming[max_ranks];
  OwnPart own;
  int failed;
};

/// Whether a round sends something to a peer, and whether it receives something from it.
struct PeerRound {
  bool sends;
  bool takes;
};

/// Sets what a round sends to `peer` and what it receives from it (or what this rank copies or reduces of its own), but
/// not the slots. Called by the thread that manages this peer. `round` counts what is sent; what is received is `lead`
/// rounds behind.
template <class Call>
__device__ __forceinline__ PeerRound plan_round(const Call& exchange, const Message& send, const Message& receive,
                                                std::uint32_t peer, std::uint32_t round, std::uint32_t lead,
                                                ExchangeRound& shared) {
  const Ring& ring = exchange.ring;
  const std::uint32_t lane = lane_of(exchange, blockIdx.x);
  std::size_t at = 0;
  const std::uint32_t taken = round < lead ? 0 : chunk_of(receive, lane, round - lead, at);
  if (peer == ring.rank) {
    shared.own = {send.data + at, receive.data + at, taken};
    return {};
  }
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  Incoming& incoming = shared.incoming[position];
  incoming.destination = receive.data + at;
  incoming.bytes = taken;
  incoming.peer = peer;
  const std::uint32_t sent = chunk_of(send, lane, round, at);
  if (exchange.cast == Cast::single || position == 0) {
    shared.outgoing[position].source = send.data + at;
    shared.outgoing[position].bytes = sent;
  }
  return {sent != 0, taken != 0};
}

/// Sets the slots of what plan_round() has set. Called by the same thread.
template <class P, class Call>
__device__ __forceinline__ void find_slots(const Call& exchange, const Message& send, const Message& receive,
                                           Lane<P>& lane, std::uint32_t position, const PeerRound& planned,
                                           ExchangeRound& shared) {
  if (planned.sends) {
    Outgoing claimed;
    if (!lane.claim_slot(send.call_hash, claimed)) shared.failed = 1;
    if (exchange.cast == Cast::single || position == 0) {
      shared.outgoing[position].slot = claimed.slot;
      shared.outgoing[position].flag = claimed.flag;
    }
  }
  if (planned.takes) lane.expect_slot(receive.call_hash, shared.incoming[position]);
}

/// Carries out an exchange. `Call` is an Exchange or a type with the same interface (exchange_call.cuh). `combine()`
/// processes what is received, and returns false if it gave up. `independent`: everything is sent before anything
/// received is waited for. Returns false if the block gave up; if more of the launch follows, all threads return the
/// same.
///
/// The time of small calls includes every instruction between the end of the previous launch and the first store, so as
/// few as possible are executed there. What depends only on the arguments is computed before, and what only later
/// launches need is done while data is on its way.
template <class P, bool independent, class Call, class Contribution, class Combine>
__device__ __forceinline__ bool run_exchange(const Call& exchange, ExchangeRound& shared, Contribution&& contribution,
                                             Combine&& combine) {
  if (begins_launch(exchange)) fetch_arguments(arguments_of(exchange));
  const Ring& ring = exchange.ring;
  const bool manages_a_peer = threadIdx.x < ring.ranks;
  const std::uint32_t peer = manages_a_peer ? threadIdx.x : 0;
  const bool has_peer = manages_a_peer && peer != ring.rank;
  const std::uint32_t position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
  const std::uint32_t copies = exchange.cast == Cast::multi ? 1 : ring.ranks - 1;
  const std::uint32_t lead = independent ? exchange.rounds : 0, rounds = exchange.rounds + lead;
  const Message send = message_to(exchange, peer), receive = message_from(exchange, peer);
  Lane<P> lane(ring, peer, exchange.cast);
  PeerRound planned{};
  if (manages_a_peer) planned = plan_round(exchange, send, receive, peer, 0, lead, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  FirstPush<P> first(shared.outgoing, copies, rounds != 0 ? exchange.pieces : 0);
  const std::uint32_t before = begins_launch(exchange) ? begin_launch(ring) : 0;
  first.load();
  const bool goes_on = manages_a_peer && lane.resume(receive.bytes == 0);
  if (manages_a_peer && !goes_on) shared.failed = 1;
  bool gives_up = false, is_marked = !begins_launch(exchange);
  const auto mark = [&] {
    if (!is_marked) mark_start(exchange, before);
    is_marked = true;
  };
  // Done here by a warp that has nothing else to do; if there is only one warp, once data is on its way.
  if (blockDim.x > warp_threads) mark();
  for (std::uint32_t round = 0; round < rounds; ++round) {
    if (round != 0 && goes_on) planned = plan_round(exchange, send, receive, peer, round, lead, shared);
    if (goes_on && has_peer) find_slots(exchange, send, receive, lane, position, planned, shared);
    const bool has_stale = block_barrier<P>(goes_on && lane.takes_stale_slots());
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<P>(ring, shared.outgoing, copies);
      __syncthreads();
    }
    const std::uint32_t pushed = round == 0 ? first.push(shared.outgoing, contribution) : 0;
    push<P>(shared.outgoing, copies, exchange.pieces, contribution, pushed);
    const bool is_last = round + 1 == rounds;
    if (is_last && has_peer) {
      if (receive.bytes != 0) lane.ask_if_due();
      lane.save(false);
    }
    // In place, received data overwrites what was sent.
    __syncthreads();
    mark();
    const bool done = combine();
    if (is_last && ends_launch(exchange)) {
      // Threads do not wait for one another here: one that gave up marks the lanes for all.
      if (!done) give_up_lanes<P>(ring, exchange.cast);
      break;
    }
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (has_peer && !is_last) lane.give_back();
  }
  mark();
  // If an earlier launch gave up on a lane, the lane stays marked, even if this launch had nothing to do.
  if (has_peer && (gives_up || (goes_on && rounds == 0))) lane.save(gives_up);
  if (gives_up || ends_launch(exchange)) count_finished_block(ring);
  return !gives_up;
}

template <class P, bool independent, class Call>
__device__ __forceinline__ bool flagged_copy(const Call& exchange, ExchangeRound& shared) {
  const auto as_it_is = [](const Granule& value) { return value; };
  return run_exchange<P, independent>(exchange, shared, as_it_is, [&] {
    copy_own<P>(shared.own, exchange.pieces);
    return collect<P>(exchange.ring, shared.incoming, exchange.ring.ranks - 1, exchange.pieces);
  });
}

template <class P, DataType type, bool sum_only, class Call>
__device__ __forceinline__ bool flagged_reduce(const Call& exchange, const Operation& operation,
                                               ExchangeRound& shared) {
  const auto contribute = [&](const Granule& value) { return contribution<type, sum_only>(value, operation); };
  return run_exchange<P, false>(exchange, shared, contribute, [&] {
    if (shared.own.bytes == 0) return true;
    return reduce_exchanged<P, type, sum_only>(exchange, shared.own, shared.incoming, operation, contribute);
  });
}

template <class P, bool independent = false>
__global__ void __launch_bounds__(max_threads, 1) exchange_copy(const __grid_constant__ Exchange exchange) {
  flagged_copy<P, independent>(exchange, shared_memory<ExchangeRound>());
}

template <class P, KernelType kind, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) exchange_reduce(const __grid_constant__ Exchange exchange) {
  const Operation operation{exchange.op, exchange.type, exchange.ring.averaged, exchange.premul_scalar};
  flagged_reduce<P, type_of(kind), sum_only>(exchange, operation, shared_memory<ExchangeRound>());
}

}  // namespace strait::kernels
