#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/exchange.cuh"
#include "kernels/lane.cuh"

/// The kernels of TwoHop (launch.hpp). A lane's rounds overlap: while round t is contributed, round t - 1 is reduced
/// and round t - 2 received, so that no step waits for a message that its peer has only now begun.
///
/// Where slots are flagged, what an iteration writes is published at its end, with one fence.
///
/// Between two ranks, slots follow in the order contribution(0), contribution(1), result(0), contribution(2),
/// result(1)..., which writer and reader count alike. Four slots hold what an iteration and its successor write.
namespace strait::kernels {

/// What the threads of a block share in one iteration. Chunks by the position of their peer (position_of).
struct TwoHopRound {
  Outgoing contributions_out[max_ranks];
  Outgoing results_out[max_ranks];
  Incoming contributions_in[max_ranks];
  Incoming results_in[max_ranks];
  const std::byte* own_input;  ///< of the chunk that this rank reduces
  std::byte* own_output;
  std::uint32_t own_bytes;
  int failed;
};

__device__ __forceinline__ bool has(std::uint32_t set, std::uint32_t rank) { return (set >> rank & 1) != 0; }

/// This block's chunk in a round of `owner`'s slice, and where it lies in the message. Round numbers below 0 have none.
__device__ __forceinline__ std::uint32_t slice_chunk_of(const TwoHop& call, std::uint32_t owner, int round,
                                                        std::size_t& offset) {
  const std::size_t begin = __popc(call.owners & ((1u << owner) - 1)) * call.slice_bytes;
  if (round < 0 || begin >= call.bytes || !has(call.owners, owner)) return 0;
  const std::size_t left = call.bytes - begin;
  const Message slice{nullptr, left < call.slice_bytes ? left : call.slice_bytes, call.chunk_bytes, call.lanes, 0};
  const std::uint32_t bytes = chunk_of(slice, static_cast<std::uint32_t>(round), offset);
  offset += begin;
  return bytes;
}

/// By the thread that looks after `peer`. `results` is `lane` where results are no multicast.
template <class W>
__device__ __forceinline__ void prepare(const TwoHop& call, Lane<W>& lane, Lane<W>& results, std::uint32_t peer,
                                        int iteration, TwoHopRound& shared) {
  const Ring& ring = call.ring;
  std::size_t offset = 0;
  const std::uint32_t own = slice_chunk_of(call, ring.rank, iteration - 1, offset);
  if (peer == ring.rank) {
    shared.own_bytes = own;
    shared.own_input = call.input + offset;
    shared.own_output = call.output + offset;
    return;
  }
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  const std::uint32_t contributed =
      has(call.contributors, ring.rank) ? slice_chunk_of(call, peer, iteration, offset) : 0;
  bool is_free = lane.next_slot(call.input + offset, contributed, call.call_hash, shared.contributions_out[position]);
  Outgoing result{};
  is_free = is_free && results.next_slot(nullptr, has(call.receivers, peer) ? own : 0, call.call_hash, result);
  if (call.results == Cast::multi && position != 0) result.bytes = 0;
  shared.results_out[position] = result;
  if (!is_free) shared.failed = 1;
  lane.expect(nullptr, has(call.contributors, peer) ? own : 0, call.call_hash, shared.contributions_in[position]);
  const std::uint32_t collected =
      has(call.receivers, ring.rank) ? slice_chunk_of(call, peer, iteration - 2, offset) : 0;
  results.expect(call.output + offset, collected, call.call_hash, shared.results_in[position]);
}

/// Reduces the chunk of this iteration, keeps it if this rank is a receiver, and sends it to the others.
/// `reduce(places, values)` makes granules of the result, of which `values` are this rank's own contributions.
template <class W, class Contribution, class Reduce>
__device__ __forceinline__ bool reduce_own(const TwoHop& call, const TwoHopRound& shared, Contribution&& contribution,
                                           Reduce&& reduce) {
  if (shared.own_bytes == 0) return true;
  const std::uint32_t rank = call.ring.rank, peers = call.ring.ranks - 1;
  const bool keeps = has(call.receivers, rank), contributes = has(call.contributors, rank);
  return for_tasks<W::reduce_batch>(call.pieces, [&](const std::uint32_t(&numbers)[W::reduce_batch]) {
    Place places[W::reduce_batch];
    Granule values[W::reduce_batch] = {};
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b) {
      places[b] = W::place_of(numbers[b], shared.own_bytes);
      if (contributes)
        values[b] = contribution(UserBytes<W::stride>(shared.own_input).load(places[b].offset, places[b].valid));
    }
    if (!reduce(places, values)) return false;
    for (std::uint32_t k = 0; k < peers; ++k) {
      if (shared.results_out[k].bytes == 0) continue;
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b) send<W>(shared.results_out[k], places[b], values[b]);
    }
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b)
      if (keeps) UserBytes<W::stride>(shared.own_output).store(places[b].offset, places[b].valid, values[b]);
    return true;
  });
}

template <class W, class Contribution, class Reduce>
__device__ __forceinline__ void run_two_hop(const TwoHop& call, TwoHopRound& shared, Contribution&& contribution,
                                            Reduce&& reduce) {
  const Ring& ring = call.ring;
  const bool minds_a_peer = threadIdx.x < ring.ranks;
  const std::uint32_t peer = minds_a_peer ? threadIdx.x : 0;
  const bool has_peer = minds_a_peer && peer != ring.rank;
  const std::uint32_t position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
  const bool multicast = W::wire != Wire::lines && call.results == Cast::multi;
  Lane<W> lane(ring, peer, Cast::single), cast_lane(ring, peer, Cast::multi);
  Lane<W>& results = multicast ? cast_lane : lane;
  if (threadIdx.x == 0) shared.failed = 0;
  __syncwarp();  // those who mind a peer are of one warp
  after_predecessor();
  const bool goes_on = minds_a_peer && lane.resume() && (!multicast || cast_lane.resume());
  if (minds_a_peer && !goes_on) shared.failed = 1;
  bool gives_up = false;
  const int last = static_cast<int>(call.rounds) + 1;
  for (int iteration = 0; iteration <= last; ++iteration) {
    if (goes_on) prepare(call, lane, results, peer, iteration, shared);
    if constexpr (W::flags_slots) {
      const bool came = !has_peer || !goes_on ||
                        (await(ring, shared.contributions_in[position]) && await(ring, shared.results_in[position]));
      if (!came) shared.failed = 1;
    }
    const bool has_stale = meet<W>(goes_on && (lane.takes_stale_slots() | results.takes_stale_slots()));
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.contributions_out, ring.ranks - 1);
      wipe<W>(ring, shared.results_out, ring.ranks - 1);
      __syncthreads();
    }
    push<W>(shared.contributions_out, ring.ranks - 1, call.pieces, contribution);
    const bool done = reduce_own<W>(call, shared, contribution, reduce) &&
                      collect<W>(ring, shared.results_in, ring.ranks - 1, call.pieces);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!has_peer || iteration == last) continue;
    if constexpr (W::flags_slots) {
      __threadfence_system();
      publish(shared.contributions_out[position]);
      publish(shared.results_out[position]);
    }
    lane.give_back();
    if (multicast) cast_lane.give_back();
  }
  if (!has_peer) return;
  lane.save(gives_up);
  if (multicast) cast_lane.save(gives_up);
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
