#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/lane.cuh"
#include "kernels/receive.cuh"

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

/// By the thread that looks after `peer`. `results` is `lane` where results are no multicast.
template <class W>
__device__ __forceinline__ void prepare(const TwoHop& call, Lane<W>& lane, Lane<W>& results, std::uint32_t peer,
                                        int iteration, TwoHopRound& shared) {
  const Ring& ring = call.ring;
  std::size_t offset = 0;
  const std::uint32_t own = slice_chunk_of(call, blockIdx.x, ring.rank, iteration - 1, offset);
  if (peer == ring.rank) {
    shared.own = {call.input + offset, call.output + offset, own};
    return;
  }
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  const std::uint32_t contributed =
      has(call.contributors, ring.rank) ? slice_chunk_of(call, blockIdx.x, peer, iteration, offset) : 0;
  bool is_free = lane.next_slot(call.input + offset, contributed, call.call_hash, shared.contributions_out[position]);
  Outgoing result{};
  is_free = is_free && results.next_slot(nullptr, has(call.receivers, peer) ? own : 0, call.call_hash, result);
  if (call.results == Cast::multi && position != 0) result.bytes = 0;
  shared.results_out[position] = result;
  if (!is_free) shared.failed = 1;
  lane.expect(nullptr, has(call.contributors, peer) ? own : 0, call.call_hash, shared.contributions_in[position]);
  const std::uint32_t collected =
      has(call.receivers, ring.rank) ? slice_chunk_of(call, blockIdx.x, peer, iteration - 2, offset) : 0;
  results.expect(call.output + offset, collected, call.call_hash, shared.results_in[position]);
}

/// `reduce`: as of reduce_own().
template <class W, class Contribution, class Reduce>
__device__ __forceinline__ void run_two_hop(const TwoHop& call, TwoHopRound& shared, Contribution&& contribution,
                                            Reduce&& reduce) {
  fetch_arguments(call);
  const Ring& ring = call.ring;
  const bool minds_a_peer = threadIdx.x < ring.ranks;
  const std::uint32_t peer = minds_a_peer ? threadIdx.x : 0;
  const bool has_peer = minds_a_peer && peer != ring.rank;
  const bool multicast = W::wire != Wire::lines && call.results == Cast::multi;
  Lane<W> lane(ring, peer, Cast::single), cast_lane(ring, peer, Cast::multi);
  Lane<W>& results = multicast ? cast_lane : lane;
  if (threadIdx.x == 0) shared.failed = 0;
  __syncwarp();  // those who mind a peer are of one warp
  const std::uint32_t before = begin_launch(ring);
  const bool goes_on = minds_a_peer && lane.resume() && (!multicast || cast_lane.resume());
  mark_start(ring, before);
  if (minds_a_peer && !goes_on) shared.failed = 1;
  bool gives_up = false;
  const int last = static_cast<int>(call.rounds) + 1;
  for (int iteration = 0; iteration <= last; ++iteration) {
    if (goes_on) prepare(call, lane, results, peer, iteration, shared);
    const bool has_stale = meet<W>(goes_on && (lane.takes_stale_slots() | results.takes_stale_slots()));
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.contributions_out, ring.ranks - 1);
      wipe<W>(ring, shared.results_out, ring.ranks - 1);
      __syncthreads();
    }
    push<W>(shared.contributions_out, ring.ranks - 1, call.pieces, contribution);
    const bool done = reduce_own<W>(call, shared.own, shared.results_out, contribution, reduce) &&
                      collect<W>(ring, shared.results_in, ring.ranks - 1, call.pieces);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!has_peer || iteration == last) continue;
    lane.give_back();
    if (multicast) cast_lane.give_back();
  }
  if (has_peer) {
    lane.save(gives_up);
    if (multicast) cast_lane.save(gives_up);
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
    return receive<W, false>(call.ring, awaited, values);
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
