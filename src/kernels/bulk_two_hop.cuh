#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/combine.cuh"
#include "kernels/exchange_call.cuh"
#include "kernels/granules.cuh"
#include "kernels/lane.cuh"
#include "kernels/lane_manager.cuh"
#include "kernels/stagger.cuh"

/// The kernels of TwoHop (launch.hpp) in bulk, as a copy and as a reduction. A block may serve several lanes
/// (lane_manager.cuh). What an iteration writes is published at its end, with one fence.
namespace strait::kernels {

/// What the threads of a block share in one iteration. For each of the block's lanes, chunks are indexed by the
/// position of their peer (position_of()).
struct BulkTwoHopRound {
  Outgoing contributions_out[max_width * max_ranks];
  Outgoing results_out[max_width * max_ranks];
  Incoming contributions_in[max_width * max_ranks];
  Incoming results_in[max_width * max_ranks];
  OwnPart own[max_width];  ///< what this rank reduces
  int failed;
};

/// Which peer, which lane and which hops a thread manages. Multicast results have lanes of their own, and threads of
/// their own, so that a block waits for the data of both hops at the same time.
struct BulkHopLaneManager : LaneManager {
  bool contributions, results;
  template <class Call>
  __device__ static BulkHopLaneManager of(const Call& call) {
    const std::uint32_t first_of_results = lane_managers_of(call.ring.ranks, call.width);
    const bool multicast = call.results == Cast::multi, is_second = multicast && threadIdx.x >= first_of_results;
    const std::uint32_t thread = threadIdx.x - (is_second ? first_of_results : 0);
    return {LaneManager(call.ring, call.width, blockIdx.x, gridDim.x, 0, thread), !is_second, !multicast || is_second};
  }
};

/// Prepares an iteration for a peer. Called by the thread that manages the peer. `Call` is a TwoHop or a type with the
/// same interface. Returns false if it gave up.
template <class Call>
__device__ __forceinline__ bool prepare(const Call& call, Lane<Bulk>& lane, const BulkHopLaneManager& manager,
                                        int iteration, BulkTwoHopRound& shared) {
  const Ring& ring = call.ring;
  const std::uint32_t peer = manager.peer, at = manager.chunk;
  std::size_t offset = 0;
  const std::uint32_t own = slice_chunk_of(call, manager.lane, ring.rank, iteration - 1, offset);
  const std::uint32_t unit = unit_bytes(call);
  if (!manager.has_peer) {
    if (manager.contributions) shared.own[manager.nth] = {call.input + offset * unit, call.output + offset * unit, own};
    return true;
  }
  bool done = true;
  if (manager.contributions) {
    const bool has_some = has(call.contributors, ring.rank);
    const std::uint32_t bytes = has_some ? slice_chunk_of(call, manager.lane, peer, iteration, offset) : 0;
    done =
        lane.next_slot(call.input + offset * unit, bytes, call.call_hash, shared.contributions_out[at], manager.lane);
  }
  if (manager.results) {
    Outgoing result{};
    done = done && lane.next_slot(nullptr, has(call.receivers, peer) ? own : 0, call.call_hash, result, manager.lane);
    if (call.results == Cast::multi && manager.position != 0) result.bytes = 0;
    shared.results_out[at] = result;
  }
  if (manager.contributions)
    lane.expect(nullptr, has(call.contributors, peer) ? own : 0, call.call_hash, shared.contributions_in[at]);
  if (manager.results) {
    const bool receives = has(call.receivers, ring.rank);
    const std::uint32_t bytes = receives ? slice_chunk_of(call, manager.lane, peer, iteration - 2, offset) : 0;
    lane.expect(call.output + offset * unit, bytes, call.call_hash, shared.results_in[at]);
  }
  if (manager.contributions) done = done && wait_for_chunk(ring, shared.contributions_in[at], manager.lane);
  if (manager.results) done = done && wait_for_chunk(ring, shared.results_in[at], manager.lane);
  return done;
}

/// Sends results to the receivers.
class PassOn {
 public:
  __device__ PassOn(const TwoHop& call, const BulkTwoHopRound& shared)
      : shared_(&shared), peers_(call.ring.ranks - 1) {}
  template <int batch>
  __device__ __forceinline__ void operator()(std::uint32_t nth, const Segment& segment,
                                             const Granule (&results)[batch]) const {
    const Outgoing* const chunks = shared_->results_out + nth * peers_;
    for (std::uint32_t k = 0; k < peers_; ++k)
      if (chunks[k].bytes != 0) store_granules(chunks[k].slot, segment, results);
  }

 private:
  const BulkTwoHopRound* shared_;
  std::uint32_t peers_;
};

/// Carries out two hops with the chunks of all of the block's lanes. `contribute()` sends contributions, `reduce()`
/// reduces them (and returns false if it gave up), `take()` takes results to where they belong.
template <class Call, class Contribute, class Reduce, class Take>
__device__ __forceinline__ void run_bulk_two_hop(const Call& call, BulkTwoHopRound& shared, Contribute&& contribute,
                                                 Reduce&& reduce, Take&& take) {
  fetch_arguments(call);
  const Ring& ring = call.ring;
  const auto manager = BulkHopLaneManager::of(call);
  Lane<Bulk> lane(ring, manager.peer, manager.contributions ? Cast::single : Cast::multi, manager.lane);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  const std::uint32_t before = begin_launch(ring);
  const bool goes_on = manager.manages && lane.resume();
  mark_start(ring, before);
  if (manager.manages && !goes_on) shared.failed = 1;
  bool gives_up = false;
  const int last = static_cast<int>(call.rounds) + (has(call.receivers, ring.rank) ? 1 : 0);
  stagger(call.stagger_ns);
  for (int iteration = 0; iteration <= last; ++iteration) {
    const auto prepare_all = [&] {
      if (!prepare(call, lane, manager, iteration, shared)) shared.failed = 1;
    };
    if (goes_on) out_of_line(prepare_all);
    __syncthreads();
    gives_up = shared.failed != 0;
    if (gives_up) break;
    const bool done = run_round(ring, contribute, reduce, take);
    const std::uint32_t chunks = (ring.ranks - 1) * call.width;
    const Notice contributed(shared.contributions_out, chunks), reduced(shared.results_out, chunks);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (manager.has_peer && iteration != last) lane.give_back();
    fence_and_publish(contributed, reduced);
  }
  if (manager.has_peer) lane.save(gives_up);
  count_finished_block(ring);
}

/// Passes on a chunk that arrived on the nth lane; `keep(segment, values)` stores it on this rank.
template <class Keep>
__device__ __forceinline__ CopyDealer relay_chunk(CopyDealer dealer, std::uint32_t nth, const std::byte* slot,
                                                  std::uint32_t bytes, const PassOn& pass_on, const Keep& keep) {
  dealer.deal(OddChunk::padded(bytes), [&](const Segment& segment) {
    Granule values[copy_batch];
    load_granules(slot, segment, values);
    pass_on(nth, segment, values);
    keep(segment, values);
  });
  return dealer;
}

/// Passes on what the one contributor has sent, on all lanes, and keeps it if this rank is a receiver.
__device__ __forceinline__ void relay(const TwoHop& call, const BulkTwoHopRound& shared, std::uint32_t contributor) {
  const std::uint32_t peers = call.ring.ranks - 1, position = position_of(contributor, call.ring.rank, call.ring.ranks);
  const bool keeps = has(call.receivers, call.ring.rank);
  const PassOn pass_on(call, shared);
  CopyDealer dealer(call.width * call.pieces);
  for (std::uint32_t nth = 0; nth < call.width; ++nth) {
    const OwnPart own = shared.own[nth];
    const std::byte* const slot = shared.contributions_in[nth * peers + position].slot;
    if (own.bytes == 0) continue;
    if (!keeps || are_granules(own.bytes, own.output)) {
      dealer = relay_chunk(dealer, nth, slot, own.bytes, pass_on, [&](const Segment& segment, const auto& values) {
        if (keeps) store_granules(own.output, segment, values);
      });
    } else {
      dealer = out_of_line([=] {
        const OddChunk output(own.output, own.bytes);
        return relay_chunk(dealer, nth, slot, own.bytes, pass_on,
                           [&](const Segment& segment, const auto& values) { output.store(segment, values); });
      });
    }
  }
}

/// A template only so that a header may define it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) bulk_two_hop_copy(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<BulkTwoHopRound>();
  const Ring& ring = call.ring;
  const std::uint32_t contributor = __ffs(static_cast<int>(call.contributors)) - 1;
  const std::uint32_t peers = ring.ranks - 1, width = call.width;
  const auto send = [&] { push_all(shared.contributions_out, peers * width, call.pieces); };
  const auto keep_own = [&] {
    CopyDealer dealer(peers * width * call.pieces);
    for (std::uint32_t i = 0; i < peers * width; ++i) {
      const OwnPart own = own_of(call, shared.contributions_out[i]);
      copy_all_own(dealer, &own, 1);
    }
  };
  const auto pass_on = [&] {
    if (contributor == ring.rank)
      keep_own();
    else
      relay(call, shared, contributor);
    return true;
  };
  run_bulk_two_hop(call, shared, send, pass_on, [&] { collect_all(shared.results_in, peers * width, call.pieces); });
}

template <KernelType kind>
__global__ void __launch_bounds__(max_threads, 1) bulk_two_hop_reduce(const __grid_constant__ TwoHop call) {
  auto& shared = shared_memory<BulkTwoHopRound>();
  const Ring& ring = call.ring;
  const Operation operation{call.op, call.type, ring.averaged, call.premul_scalar};
  const auto contribute = [operation](const Granule& value) {
    return contribution<type_of(kind), false>(value, operation);
  };
  const std::uint32_t peers = ring.ranks - 1, width = call.width;
  const auto send = [&] {
    push_contributions<type_of(kind)>(shared.contributions_out, peers * width, call.pieces, operation);
  };
  const auto reduce_all = [&] {
    if (sum_all<type_of(kind)>(ring, shared.own, shared.contributions_in, width, call.pieces, operation,
                               has(call.receivers, ring.rank), PassOn(call, shared)))
      return true;
    for (std::uint32_t nth = 0; nth < width; ++nth) {
      const OwnPart& own = shared.own[nth];
      const auto reduce_it = [=, all = &call, incoming = shared.contributions_in + nth * peers,
                              results_out = shared.results_out + nth * peers] {
        const auto reduce = [&](const Place(&places)[Bulk::reduce_batch], Granule(&values)[Bulk::reduce_batch]) {
          Reduction<type_of(kind), false, Granule> reductions[Bulk::reduce_batch];
          if (!reduce_places<Bulk>(all->ring, incoming, all->contributors, places, values, operation, reductions))
            return false;
#pragma unroll
          for (int b = 0; b < Bulk::reduce_batch; ++b) values[b] = reductions[b].result(operation);
          return true;
        };
        return reduce_own<Bulk>(*all, own, results_out, contribute, reduce);
      };
      if (!out_of_line(reduce_it)) return false;
    }
    return true;
  };
  const auto take = [&] { collect_all(shared.results_in, peers * width, call.pieces); };
  run_bulk_two_hop(call, shared, send, reduce_all, take);
}

}  // namespace strait::kernels
