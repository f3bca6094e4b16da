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

/// What the threads of a block share in one iteration: for each of its lanes, chunks by the position of their peer
/// (position_of).
template <class W>
struct TwoHopRound {
  Outgoing contributions_out[W::max_width * max_ranks];
  Outgoing results_out[W::max_width * max_ranks];
  Incoming contributions_in[W::max_width * max_ranks];
  Incoming results_in[W::max_width * max_ranks];
  Own own[W::max_width];  ///< what this rank reduces
  int failed;
};

__device__ __forceinline__ bool has(std::uint32_t set, std::uint32_t rank) { return (set >> rank & 1) != 0; }

/// A lane's chunk in a round of `owner`'s slice, and where it lies in the message. Round numbers below 0 have none.
__device__ __forceinline__ std::uint32_t slice_chunk_of(const TwoHop& call, std::uint32_t lane, std::uint32_t owner,
                                                        int round, std::size_t& offset) {
  const std::size_t begin = __popc(call.owners & ((1u << owner) - 1)) * call.slice_bytes;
  if (round < 0 || begin >= call.bytes || !has(call.owners, owner)) return 0;
  const std::size_t left = call.bytes - begin;
  const Message slice{nullptr, left < call.slice_bytes ? left : call.slice_bytes, call.chunk_bytes, call.lanes, 0};
  const std::uint32_t bytes = chunk_of(slice, lane, static_cast<std::uint32_t>(round), offset);
  offset += begin;
  return bytes;
}

/// By the thread that looks after a peer. `results` is `lane` where results are no multicast.
template <class W>
__device__ __forceinline__ void prepare(const TwoHop& call, Lane<W>& lane, Lane<W>& results, const Minder<W>& minder,
                                        int iteration, TwoHopRound<W>& shared) {
  const Ring& ring = call.ring;
  const std::uint32_t peer = minder.peer;
  std::size_t offset = 0;
  const std::uint32_t own = slice_chunk_of(call, minder.lane, ring.rank, iteration - 1, offset);
  if (!minder.has_peer) {
    shared.own[minder.nth] = {call.input + offset, call.output + offset, own};
    return;
  }
  const std::uint32_t at = minder.nth * (ring.ranks - 1) + minder.position;
  const std::uint32_t contributed =
      has(call.contributors, ring.rank) ? slice_chunk_of(call, minder.lane, peer, iteration, offset) : 0;
  bool is_free = lane.next_slot(call.input + offset, contributed, call.call_hash, shared.contributions_out[at]);
  Outgoing result{};
  is_free = is_free && results.next_slot(nullptr, has(call.receivers, peer) ? own : 0, call.call_hash, result);
  if (call.results == Cast::multi && minder.position != 0) result.bytes = 0;
  shared.results_out[at] = result;
  if (!is_free) shared.failed = 1;
  lane.expect(nullptr, has(call.contributors, peer) ? own : 0, call.call_hash, shared.contributions_in[at]);
  const std::uint32_t collected =
      has(call.receivers, ring.rank) ? slice_chunk_of(call, minder.lane, peer, iteration - 2, offset) : 0;
  results.expect(call.output + offset, collected, call.call_hash, shared.results_in[at]);
}

/// Reduces the chunk of this iteration of one of the block's lanes, keeps it if this rank is a receiver, and sends it
/// to the others. `reduce(places, values)` makes granules of the result, of which `values` are this rank's own
/// contributions.
template <class W, class Contribution, class Reduce>
__device__ __forceinline__ bool reduce_own(const TwoHop& call, const Own& own, const Outgoing* results_out,
                                           Contribution&& contribution, Reduce&& reduce) {
  if (own.bytes == 0) return true;
  const std::uint32_t rank = call.ring.rank, peers = call.ring.ranks - 1;
  const bool keeps = has(call.receivers, rank), contributes = has(call.contributors, rank);
  return for_tasks<W::reduce_batch>(call.pieces, [&](const std::uint32_t(&numbers)[W::reduce_batch]) {
    Place places[W::reduce_batch];
    Granule values[W::reduce_batch] = {};
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b) {
      places[b] = W::place_of(numbers[b], own.bytes);
      if (contributes)
        values[b] = contribution(UserBytes<W::stride>(own.input).load(places[b].offset, places[b].valid));
    }
    if (!reduce(places, values)) return false;
    for (std::uint32_t k = 0; k < peers; ++k) {
      if (results_out[k].bytes == 0) continue;
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b) send<W>(results_out[k], places[b], values[b]);
    }
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b)
      if (keeps) UserBytes<W::stride>(own.output).store(places[b].offset, places[b].valid, values[b]);
    return true;
  });
}

/// Likewise, results that are granules.
template <class W>
class Keep {
 public:
  __device__ Keep(const TwoHop& call, const TwoHopRound<W>& shared)
      : shared_(&shared), peers_(call.ring.ranks - 1), keeps_(has(call.receivers, call.ring.rank)) {}
  template <int batch>
  __device__ __forceinline__ void operator()(std::uint32_t nth, const Segment& segment,
                                             const Granule (&results)[batch]) const {
    const Outgoing* const chunks = shared_->results_out + nth * peers_;
    for (std::uint32_t k = 0; k < peers_; ++k)
      if (chunks[k].bytes != 0) store_granules(chunks[k].slot, segment, results);
    if (keeps_) store_granules(shared_->own[nth].output, segment, results);
  }

 private:
  const TwoHopRound<W>* shared_;
  std::uint32_t peers_;
  bool keeps_;
};

/// `reduce()` does so with the chunks of all of the block's lanes; false: gave up.
template <class W, class Contribution, class Reduce>
__device__ __forceinline__ void run_two_hop(const TwoHop& call, TwoHopRound<W>& shared, bool as_it_is,
                                            Contribution&& contribution, Reduce&& reduce) {
  const Ring& ring = call.ring;
  const Minder<W> minder(ring, call.width);
  const std::uint32_t chunks = (ring.ranks - 1) * (W::max_width > 1 ? call.width : 1);
  const std::uint32_t at = minder.nth * (ring.ranks - 1) + minder.position;
  const bool multicast = W::wire != Wire::lines && call.results == Cast::multi;
  Lane<W> lane(ring, minder.peer, Cast::single, minder.lane), cast_lane(ring, minder.peer, Cast::multi, minder.lane);
  Lane<W>& results = multicast ? cast_lane : lane;
  if (threadIdx.x == 0) shared.failed = 0;
  if constexpr (W::max_width > 1)
    __syncthreads();
  else
    __syncwarp();  // those who mind a peer are of one warp
  after_predecessor();
  const bool goes_on = minder.minds && lane.resume() && (!multicast || cast_lane.resume());
  if (minder.minds && !goes_on) shared.failed = 1;
  bool gives_up = false;
  const int last = static_cast<int>(call.rounds) + 1;
  for (int iteration = 0; iteration <= last; ++iteration) {
    const auto prepare_all = [&] {
      prepare(call, lane, results, minder, iteration, shared);
      if constexpr (W::flags_slots) {
        const bool came = !minder.has_peer || (await(ring, shared.contributions_in[at], minder.lane) &&
                                               await(ring, shared.results_in[at], minder.lane));
        if (!came) shared.failed = 1;
      }
    };
    if (goes_on) perhaps_out_of_line<W>(prepare_all);
    const bool has_stale = meet<W>(goes_on && (lane.takes_stale_slots() | results.takes_stale_slots()));
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.contributions_out, ring.ranks - 1);
      wipe<W>(ring, shared.results_out, ring.ranks - 1);
      __syncthreads();
    }
    push_all<W>(shared.contributions_out, chunks, call.pieces, as_it_is, contribution);
    const bool done = reduce() && collect_all<W>(ring, shared.results_in, chunks, call.pieces);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!minder.has_peer || iteration == last) continue;
    if constexpr (W::flags_slots) {
      __threadfence_system();
      publish(shared.contributions_out[at]);
      publish(shared.results_out[at]);
    }
    lane.give_back();
    if (multicast) cast_lane.give_back();
  }
  if (!minder.has_peer) return;
  lane.save(gives_up);
  if (multicast) cast_lane.save(gives_up);
}

/// Passes on what came from the one contributor, where it is granules.
template <class W>
__device__ __forceinline__ void relay_granules(const TwoHop& call, const TwoHopRound<W>& shared, std::uint32_t width,
                                               std::uint32_t contributor) {
  CopyDealer dealer(width * call.pieces);
  const Keep<W> keep(call, shared);
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    if (!shared.own[nth].are_granules()) continue;
    const std::uint32_t position = position_of(contributor, call.ring.rank, call.ring.ranks);
    const std::byte* const slot = shared.contributions_in[nth * (call.ring.ranks - 1) + position].slot;
    dealer.deal(shared.own[nth].bytes, [&](const Segment& segment) {
      Granule values[copy_batch];
      load_granules(slot, segment, values);
      keep(nth, segment, values);
    });
  }
}

template <class W>
__global__ void __launch_bounds__(max_threads, 1) two_hop_copy(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<TwoHopRound<W>>();
  const auto as_it_is = [](const Granule& value) { return value; };
  const Ring& ring = call.ring;
  const std::uint32_t contributor = __ffs(static_cast<int>(call.contributors)) - 1;
  const std::uint32_t peers = ring.ranks - 1, width = W::max_width > 1 ? call.width : 1;
  run_two_hop<W>(call, shared, true, as_it_is, [&] {
    const bool relays = W::flags_slots && contributor != ring.rank;
    if (relays) relay_granules<W>(call, shared, width, contributor);
    for (std::uint32_t nth = 0; nth < width; ++nth) {
      const Own& own = shared.own[nth];
      if (relays && own.are_granules()) continue;
      const auto pass_on = [=, all = &call, incoming = shared.contributions_in + nth * peers,
                            results_out = shared.results_out + nth * peers] {
        const auto receive_it = [&](const Place(&places)[W::reduce_batch], Granule(&values)[W::reduce_batch]) {
          if (contributor == all->ring.rank) return true;
          const Incoming& chunk = incoming[position_of(contributor, all->ring.rank, all->ring.ranks)];
          Awaited awaited[W::reduce_batch];
#pragma unroll
          for (int b = 0; b < W::reduce_batch; ++b)
            awaited[b] = {places[b].active ? chunk.slot + places[b].slot_offset : nullptr, chunk.flag, contributor};
          return receive<W>(all->ring, awaited, values);
        };
        return reduce_own<W>(*all, own, results_out, as_it_is, receive_it);
      };
      if (!perhaps_out_of_line<W>(pass_on)) return false;
    }
    return true;
  });
}

template <class W, DataType type, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) two_hop_reduce(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<TwoHopRound<W>>();
  const Ring& ring = call.ring;
  const Operation operation{call.op, ring.averaged, call.premul_scalar};
  const auto contribute = [operation](const Granule& value) { return contribution<type, sum_only>(value, operation); };
  const std::uint32_t peers = ring.ranks - 1, width = W::max_width > 1 ? call.width : 1;
  run_two_hop<W>(call, shared, operation.op != ReduceOp::premul_sum, contribute, [&] {
    const bool sums = sum_all<W, type>(ring, shared.own, shared.contributions_in, width, call.pieces, operation,
                                       Keep<W>(call, shared));
    for (std::uint32_t nth = 0; nth < width; ++nth) {
      const Own& own = shared.own[nth];
      if (sums && own.are_granules()) continue;
      const auto reduce_it = [=, all = &call, incoming = shared.contributions_in + nth * peers,
                              results_out = shared.results_out + nth * peers] {
        const auto reduce = [&](const Place(&places)[W::reduce_batch], Granule(&values)[W::reduce_batch]) {
          Reduction<type, sum_only, Granule> reductions[W::reduce_batch];
          if (!reduce_places<W>(all->ring, incoming, all->contributors, places, values, operation, reductions))
            return false;
#pragma unroll
          for (int b = 0; b < W::reduce_batch; ++b) values[b] = reductions[b].result(operation);
          return true;
        };
        return reduce_own<W>(*all, own, results_out, contribute, reduce);
      };
      if (!perhaps_out_of_line<W>(reduce_it)) return false;
    }
    return true;
  });
}

}  // namespace strait::kernels
