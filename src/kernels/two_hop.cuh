#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/lane.cuh"

/// The kernels of TwoHop (launch.hpp) over wires whose data bears flags, lines and packets: as a copy and as a
/// reduction. Block l serves lane l.
namespace strait::kernels {

/// What the threads of a block share in one iteration. Chunks by the position of their peer (position_of).
struct TwoHopRound {
  Outgoing contributions_out[max_ranks];
  Outgoing results_out[max_ranks];
  Incoming contributions_in[max_ranks];
  Incoming results_in[max_ranks];
  Own own;  ///< what this rank reduces
  int failed;
};

/// Of an iteration, what a rank and a peer have for one another.
struct PeerIteration {
  bool contributes;
  bool passes_on;  ///< results
  bool takes;      ///< contributions
  bool collects;   ///< results
};

/// By the thread that looks after `peer`: what an iteration sends it, and what comes from it, or of this rank's own;
/// but not in which slots.
__device__ __forceinline__ PeerIteration plan_iteration(const TwoHop& call, std::uint32_t peer, int iteration,
                                                        TwoHopRound& shared) {
  const Ring& ring = call.ring;
  std::size_t at = 0;
  const std::uint32_t own = slice_chunk_of(call, blockIdx.x, ring.rank, iteration - 1, at);
  if (peer == ring.rank) {
    shared.own = {call.input + at, call.output + at, own};
    return {};
  }
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  const std::uint32_t contributed =
      has(call.contributors, ring.rank) ? slice_chunk_of(call, blockIdx.x, peer, iteration, at) : 0;
  shared.contributions_out[position].source = call.input + at;
  shared.contributions_out[position].bytes = contributed;
  const bool passes_on = own != 0 && has(call.receivers, peer), takes = own != 0 && has(call.contributors, peer);
  shared.results_out[position].bytes = passes_on && (call.results == Cast::single || position == 0) ? own : 0;
  shared.contributions_in[position].bytes = takes ? own : 0;
  shared.contributions_in[position].peer = peer;
  const std::uint32_t collected =
      has(call.receivers, ring.rank) ? slice_chunk_of(call, blockIdx.x, peer, iteration - 2, at) : 0;
  Incoming& result = shared.results_in[position];
  result.destination = call.output + at;
  result.bytes = collected;
  result.peer = peer;
  return {contributed != 0, passes_on, takes, collected != 0};
}

/// Likewise, which slots. `results` is `lane` where results are no multicast. False: gave up.
template <class W>
__device__ __forceinline__ bool find_slots(const TwoHop& call, Lane<W>& lane, Lane<W>& results, std::uint32_t position,
                                           const PeerIteration& planned, TwoHopRound& shared) {
  const auto claim = [&](Lane<W>& of, Outgoing& chunk) {
    Outgoing claimed;
    if (!of.claim_slot(call.call_hash, claimed)) return false;
    chunk.slot = claimed.slot;
    chunk.flag = claimed.flag;
    return true;
  };
  if (planned.contributes && !claim(lane, shared.contributions_out[position])) return false;
  if (planned.passes_on && !claim(results, shared.results_out[position])) return false;
  if (planned.takes) lane.expect_slot(call.call_hash, shared.contributions_in[position]);
  if (planned.collects) results.expect_slot(call.call_hash, shared.results_in[position]);
  return true;
}

/// `reduce`: as of reduce_own(). What stands between the launch before this one and the first store: run_exchange().
template <class W, class Contribution, class Reduce>
__device__ __forceinline__ void run_two_hop(const TwoHop& call, TwoHopRound& shared, Contribution&& contribution,
                                            Reduce&& reduce) {
  fetch_arguments(call);
  const Ring& ring = call.ring;
  const bool minds_a_peer = threadIdx.x < ring.ranks;
  const std::uint32_t peer = minds_a_peer ? threadIdx.x : 0;
  const bool has_peer = minds_a_peer && peer != ring.rank;
  const std::uint32_t position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
  const bool multicast = W::wire != Wire::lines && call.results == Cast::multi;
  Lane<W> lane(ring, peer, Cast::single), cast_lane(ring, peer, Cast::multi);
  Lane<W>& results = multicast ? cast_lane : lane;
  PeerIteration planned{};
  if (minds_a_peer) planned = plan_iteration(call, peer, 0, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  FirstPush<W> first(shared.contributions_out, ring.ranks - 1, call.pieces);
  const std::uint32_t before = begin_launch(ring);
  first.load();
  const bool goes_on = minds_a_peer && lane.resume() && (!multicast || cast_lane.resume());
  if (minds_a_peer && !goes_on) shared.failed = 1;
  bool gives_up = false, is_marked = false;
  const auto mark = [&] {
    if (!is_marked) mark_start(ring, before);
    is_marked = true;
  };
  const int last = static_cast<int>(call.rounds) + 1;
  for (int iteration = 0; iteration <= last; ++iteration) {
    if (iteration != 0 && goes_on) planned = plan_iteration(call, peer, iteration, shared);
    if (goes_on && has_peer && !find_slots(call, lane, results, position, planned, shared)) shared.failed = 1;
    if (iteration == last && goes_on && has_peer) {
      lane.save(false);
      if (multicast) cast_lane.save(false);
    }
    const bool has_stale = meet<W>(goes_on && (lane.takes_stale_slots() | results.takes_stale_slots()));
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.contributions_out, ring.ranks - 1);
      wipe<W>(ring, shared.results_out, ring.ranks - 1);
      __syncthreads();
    }
    if (iteration != 0 || !first.push(shared.contributions_out, contribution))
      push<W>(shared.contributions_out, ring.ranks - 1, call.pieces, contribution);
    mark();
    const bool done = reduce_own<W>(call, shared.own, shared.results_out, contribution, reduce) &&
                      collect<W>(ring, shared.results_in, ring.ranks - 1, call.pieces);
    if (iteration == last) {
      if (!done) give_up_lanes<W>(ring, Cast::single);
      if (!done && multicast) give_up_lanes<W>(ring, Cast::multi);
      break;
    }
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!has_peer) continue;
    lane.give_back();
    if (multicast) cast_lane.give_back();
  }
  mark();
  if (gives_up) {
    if (has_peer) lane.save(true);
    if (has_peer && multicast) cast_lane.save(true);
  }
  tell_finished(ring);
}

template <class W>
__global__ void __launch_bounds__(max_threads, 1) two_hop_copy(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<TwoHopRound>();
  const auto as_it_is = [](const Granule& value) { return value; };
  const std::uint32_t contributor = __ffs(static_cast<int>(call.contributors)) - 1;
  run_two_hop<W>(call, shared, as_it_is, [&](const Place(&places)[W::reduce_batch], Granule(&values)[W::reduce_batch]) {
    if (contributor == call.ring.rank) return true;
    const Incoming& chunk = shared.contributions_in[position_of(contributor, call.ring.rank, call.ring.ranks)];
    Awaited awaited[W::reduce_batch];
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b)
      awaited[b] = {places[b].active ? chunk.slot + places[b].slot_offset : nullptr, chunk.flag, contributor};
    return receive<W>(call.ring, awaited, values);
  });
}

template <class W, DataType type, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) two_hop_reduce(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<TwoHopRound>();
  const Operation operation{call.op, call.ring.averaged, call.premul_scalar};
  const auto contribute = [&](const Granule& value) { return contribution<type, sum_only>(value, operation); };
  run_two_hop<W>(call, shared, contribute,
                 [&](const Place(&places)[W::reduce_batch], Granule(&values)[W::reduce_batch]) {
                   Reduction<type, sum_only, Granule> reductions[W::reduce_batch];
                   if (!reduce_places<W>(call.ring, shared.contributions_in, call.contributors, places, values,
                                         operation, reductions))
                     return false;
#pragma unroll
                   for (int b = 0; b < W::reduce_batch; ++b) values[b] = reductions[b].result(operation);
                   return true;
                 });
}

}  // namespace strait::kernels
