#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/first_push.cuh"
#include "kernels/lane.cuh"
#include "kernels/receive.cuh"

/// The kernels of TwoHop (launch.hpp) over protocols that send flags with the data (lines and packets): as a copy and
/// as a reduction. Block l serves lane l.
namespace strait::kernels {

/// What the threads of a block share in one iteration. Chunks are indexed by the position of their peer
/// (position_of()).
struct TwoHopRound {
  Outgoing contributions_out[max_ranks];
  Outgoing results_out[max_ranks];
  Incoming contributions_in[max_ranks];
  /// In the last iteration, the results of one round, followed by those of the next.
  Incoming results_in[2 * max_ranks];
  OwnPart own;  ///< what this rank reduces
  int failed_to_send, failed_to_add;
};

/// Returns by how many rounds adding is behind contributing, and collecting behind adding. A single round takes all
/// three steps in one iteration. Of several rounds, the last one is added up and collected in the same iteration.
__device__ __forceinline__ int lag_of(const TwoHop& call) { return call.rounds == 1 ? 0 : 1; }
__device__ __forceinline__ int last_iteration(const TwoHop& call) {
  return static_cast<int>(call.rounds) - 1 + lag_of(call);
}
__device__ __forceinline__ bool collects_twice(const TwoHop& call, int iteration) {
  return lag_of(call) != 0 && iteration == last_iteration(call);
}

/// Which hops of which peer a thread manages. Multicast results have lanes of their own, and so threads of their own.
struct HopLaneManager {
  std::uint32_t peer;
  bool manages, contributions, results;
  __device__ HopLaneManager(const TwoHop& call, bool multicast)
      : peer(threadIdx.x % max_ranks),
        manages(threadIdx.x < max_ranks * (multicast ? 2 : 1) && peer < call.ring.ranks),
        contributions(!multicast || threadIdx.x < max_ranks),
        results(!multicast || !contributions) {
    static_assert(2 * max_ranks <= warp_threads);
  }
};

/// Sets what this rank contributes to the peer's slice, but not the slot.
__device__ __forceinline__ void plan_contribution(const TwoHop& call, const HopLaneManager& manager, int iteration,
                                                  TwoHopRound& shared) {
  if (!manager.contributions || manager.peer == call.ring.rank) return;
  std::size_t offset = 0;
  const bool contributes = has(call.contributors, call.ring.rank);
  const std::uint32_t bytes = contributes ? slice_chunk_of(call, blockIdx.x, manager.peer, iteration, offset) : 0;
  Outgoing& chunk = shared.contributions_out[position_of(manager.peer, call.ring.rank, call.ring.ranks)];
  chunk.source = call.input + offset;
  chunk.bytes = bytes;
}

/// Claims the slot of what plan_contribution() has set.
template <class P>
__device__ __forceinline__ void claim_contribution(const TwoHop& call, const HopLaneManager& manager, Lane<P>& lane,
                                                   TwoHopRound& shared) {
  if (!manager.contributions || manager.peer == call.ring.rank) return;
  Outgoing& chunk = shared.contributions_out[position_of(manager.peer, call.ring.rank, call.ring.ranks)];
  if (chunk.bytes != 0 && !lane.claim_slot(call.call_hash, chunk)) shared.failed_to_send = 1;
}

/// Sets what is added up and what is collected. Called while the contributions are on their way.
template <class P>
__device__ __forceinline__ void prepare_sums(const TwoHop& call, const HopLaneManager& manager, Lane<P>& lane,
                                             int iteration, TwoHopRound& shared) {
  const Ring& ring = call.ring;
  const std::uint32_t peer = manager.peer;
  const int lag = lag_of(call);
  std::size_t offset = 0;
  const std::uint32_t own = slice_chunk_of(call, blockIdx.x, ring.rank, iteration - lag, offset);
  if (peer == ring.rank) {
    if (manager.contributions) shared.own = {call.input + offset, call.output + offset, own};
    return;
  }
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  if (manager.contributions)
    lane.expect(nullptr, has(call.contributors, peer) ? own : 0, call.call_hash, shared.contributions_in[position]);
  if (!manager.results) return;
  Outgoing result{};
  if (!lane.next_slot(nullptr, has(call.receivers, peer) ? own : 0, call.call_hash, result)) shared.failed_to_add = 1;
  if (call.results == Cast::multi && position != 0) result.bytes = 0;
  shared.results_out[position] = result;
  const bool receives = has(call.receivers, ring.rank);
  const int first = iteration - 2 * lag, last = collects_twice(call, iteration) ? first + 1 : first;
#pragma unroll 1
  for (int round = first; round <= last; ++round) {
    const std::uint32_t bytes = receives ? slice_chunk_of(call, blockIdx.x, peer, round, offset) : 0;
    const std::uint32_t set = (round - first) * (ring.ranks - 1);
    lane.expect(call.output + offset, bytes, call.call_hash, shared.results_in[set + position]);
  }
}

/// A barrier that follows the claiming of the slots of `chunks`. Returns false if that gave up.
template <class P>
__device__ __forceinline__ bool meet_with(const Ring& ring, const Outgoing* chunks, bool takes_stale_slots,
                                          const int& failed) {
  const bool has_stale = block_barrier<P>(takes_stale_slots);
  if (failed != 0) return false;
  if (!has_stale) return true;
  wipe<P>(ring, chunks, ring.ranks - 1);
  __syncthreads();
  return true;
}

/// Carries out two hops. `reduce`: see reduce_own(). `keep()` copies, once contributions are sent, what this rank keeps
/// of them. The steps of an iteration are separated by barriers, although flags would make these unnecessary. Polling
/// for data that has not arrived yet takes bandwidth of a link to the host that others need: without barriers,
/// all-reduces of 256 KB among four H200 take a fifth longer. Moreover, a step is prepared while data of the previous
/// step is on its way.
template <class P, class Contribution, class Reduce, class Keep>
__device__ __forceinline__ void run_two_hop(const TwoHop& call, TwoHopRound& shared, Contribution&& contribution,
                                            Reduce&& reduce, Keep&& keep) {
  fetch_arguments(call);
  const Ring& ring = call.ring;
  const HopLaneManager manager(call, P::protocol != Protocol::lines && call.results == Cast::multi);
  const bool has_peer = manager.manages && manager.peer != ring.rank;
  Lane<P> lane(ring, manager.manages ? manager.peer : 0, manager.contributions ? Cast::single : Cast::multi);
  if (manager.manages) plan_contribution(call, manager, 0, shared);
  if (threadIdx.x == 0) shared.failed_to_send = shared.failed_to_add = 0;
  __syncthreads();
  FirstPush<P> first(shared.contributions_out, ring.ranks - 1, call.pieces);
  const std::uint32_t before = begin_launch(ring);
  first.load();
  const bool goes_on = manager.manages && lane.resume();
  mark_start(ring, before);
  if (manager.manages && !goes_on) shared.failed_to_send = 1;
  const auto meet_to_send = [&] {
    if (goes_on) claim_contribution(call, manager, lane, shared);
    return meet_with<P>(ring, shared.contributions_out, goes_on && lane.takes_stale_slots(), shared.failed_to_send);
  };
  bool gives_up = !meet_to_send();
  std::uint32_t pushed = gives_up ? 0 : first.push(shared.contributions_out, contribution);
  const int last = last_iteration(call);
  for (int iteration = 0; !gives_up; ++iteration) {
    push<P>(shared.contributions_out, ring.ranks - 1, call.pieces, contribution, pushed);
    pushed = 0;
    if (goes_on) prepare_sums(call, manager, lane, iteration, shared);
    keep();
    gives_up = !meet_with<P>(ring, shared.results_out, goes_on && lane.takes_stale_slots(), shared.failed_to_add);
    if (gives_up) break;
    bool done = reduce_own<P>(call, shared.own, shared.results_out, contribution, reduce);
    if constexpr (P::protocol == Protocol::packets) __syncthreads();
    const std::uint32_t collected = (ring.ranks - 1) * (collects_twice(call, iteration) ? 2 : 1);
    done = done && collect<P>(ring, shared.results_in, collected, call.pieces);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up || iteration == last) break;
    if (has_peer) lane.give_back();
    if (manager.manages) plan_contribution(call, manager, iteration + 1, shared);
    gives_up = !meet_to_send();
  }
  if (has_peer) lane.save(gives_up);
  count_finished_block(ring);
}

template <class P>
__global__ void __launch_bounds__(max_threads, 1) two_hop_copy(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<TwoHopRound>();
  const auto as_it_is = [](const Granule& value) { return value; };
  const Ring& ring = call.ring;
  const std::uint32_t contributor = __ffs(static_cast<int>(call.contributors)) - 1;
  const auto relay = [&](const Place(&places)[P::reduce_batch], Granule(&values)[P::reduce_batch]) {
    if (contributor == ring.rank) return true;
    const Incoming& chunk = shared.contributions_in[position_of(contributor, ring.rank, ring.ranks)];
    Awaited awaited[P::reduce_batch];
#pragma unroll
    for (int b = 0; b < P::reduce_batch; ++b)
      awaited[b] = {places[b].active ? chunk.slot + places[b].slot_offset : nullptr, chunk.flag, contributor};
    return receive<P, false>(ring, awaited, values);
  };
  const auto keep = [&] {
    for (std::uint32_t i = 0; contributor == ring.rank && i < ring.ranks - 1; ++i)
      copy_own<P>(own_of(call, shared.contributions_out[i]), call.pieces);
  };
  run_two_hop<P>(call, shared, as_it_is, relay, keep);
}

template <class P, KernelType kind, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) two_hop_reduce(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<TwoHopRound>();
  const Operation operation{call.op, call.type, call.ring.averaged, call.premul_scalar};
  const auto contribute = [&](const Granule& value) { return contribution<type_of(kind), sum_only>(value, operation); };
  run_two_hop<P>(
      call, shared, contribute,
      [&](const Place(&places)[P::reduce_batch], Granule(&values)[P::reduce_batch]) {
        Reduction<type_of(kind), sum_only, Granule> reductions[P::reduce_batch];
        if (!reduce_places<P>(call.ring, shared.contributions_in, call.contributors, places, values, operation,
                              reductions))
          return false;
#pragma unroll
        for (int b = 0; b < P::reduce_batch; ++b) values[b] = reductions[b].result(operation);
        return true;
      },
      [] {});
}

}  // namespace strait::kernels
