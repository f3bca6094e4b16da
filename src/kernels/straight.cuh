#pragma once

#include "kernels/granules.cuh"
#include "kernels/lane.cuh"
#include "kernels/minder.cuh"

/// The kernel of StraightExchange (launch.hpp): it writes into the peers' outputs themselves, and no slot. A lane's
/// slots carry nothing but their flags: the first says that this rank's output may be written, because its stream has
/// come to the call; the second that all has been written which comes on this lane.
namespace strait::kernels {

struct StraightMemory {
  int failed;
};

/// By all threads of a block: its lane's chunks for all ranks, this one's own last.
__device__ __forceinline__ void push_straight(const StraightExchange& call) {
  const Ring& ring = call.ring;
  CopyDealer dealer(ring.ranks * call.pieces);
  for (std::uint32_t round = 0; round < call.rounds; ++round)
    for (std::uint32_t after = 1; after <= ring.ranks; ++after) {
      const std::uint32_t to = ring.rank + after < ring.ranks ? ring.rank + after : ring.rank + after - ring.ranks;
      std::size_t offset = 0;
      const std::uint32_t bytes = chunk_of(call.send[to], blockIdx.x, round, offset);
      const Own part{call.send[to].data + offset, call.there[to] + offset, bytes};
      if (bytes == 0 || part.input == part.output) continue;
      if (are_granules(part))
        copy_granules(dealer, part.output, part.input, bytes);
      else
        out_of_line([part, pieces = call.pieces] { copy_own<Bulk>(part, pieces); });
    }
}

/// A template only so that a header may hold it.
template <class W = Bulk>
__global__ void __launch_bounds__(max_threads, 1) straight_copy(const __grid_constant__ StraightExchange call) {
  fetch_arguments(call);
  int& failed = shared_memory<StraightMemory>().failed;
  const Ring& ring = call.ring;
  const Minder minder(ring, 1);
  Lane<Bulk> lane(ring, minder.peer, Cast::single, minder.lane);
  if (threadIdx.x == 0) failed = 0;
  __syncthreads();
  const std::uint32_t before = begin_launch(ring);
  const bool goes_on = minder.minds && lane.resume();
  mark_start(ring, before);
  if (minder.minds && !goes_on) failed = 1;
  const auto meet = [&] {
    if (!goes_on || !minder.has_peer) return;
    const std::uint16_t hash = call.send[minder.peer].call_hash;
    Outgoing told;
    Incoming heard;
    const bool is_free = lane.next_slot(nullptr, 1, hash, told, minder.lane);
    if (is_free) publish(told);
    lane.expect(nullptr, 1, hash, heard);
    if (!is_free || !await(ring, heard, minder.lane)) failed = 1;
  };
  out_of_line(meet);
  __syncthreads();
  bool gives_up = failed != 0;
  if (!gives_up) {
    push_straight(call);
    __syncthreads();
    if (minder.has_peer) __threadfence_system();
    out_of_line(meet);
    __syncthreads();
    gives_up = failed != 0;
  }
  if (minder.has_peer) lane.save(gives_up);
  tell_finished(ring);
}

}  // namespace strait::kernels
