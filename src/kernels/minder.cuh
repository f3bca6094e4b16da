#pragma once

#include "kernels/protocol.cuh"

/// Where slots are flagged, a block may serve several lanes at once, each with a chunk, a slot, a flag and counters of
/// its own: so few blocks move much between two fences. The far end sees lanes, and nothing of who serves them; slots
/// joined into larger ones would need a layout, flags and counters for every number of blocks that a call may ask for.
namespace strait::kernels {

/// Of which peer, and on which of the block's `width` lanes, this thread looks after what is sent and received: the
/// first threads, one each.
struct Minder {
  /// `block`: among the blocks of the call, of which there are `blocks`, whose lanes begin with `first_lane`. `thread`:
  /// among those that look after the same lanes.
  __device__ Minder(const Ring& ring, std::uint32_t width, std::uint32_t block, std::uint32_t blocks,
                    std::uint32_t first_lane, std::uint32_t thread = threadIdx.x) {
    nth = thread / ring.ranks;
    minds = thread < ring.ranks * width;
    if (!minds) nth = 0;
    peer = minds ? thread - nth * ring.ranks : 0;
    lane = first_lane + block + nth * blocks;
    has_peer = minds && peer != ring.rank;
    position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
    chunk = nth * (ring.ranks - 1) + position;
  }
  __device__ Minder(const Ring& ring, std::uint32_t width) : Minder(ring, width, blockIdx.x, gridDim.x, 0) {}
  std::uint32_t nth;  ///< of the block's lanes
  std::uint32_t lane;
  std::uint32_t peer;
  std::uint32_t position;  ///< of the peer
  std::uint32_t chunk;     ///< what is sent to it, or comes from it, among that of all of the block's lanes
  bool minds;
  bool has_peer;  ///< it minds one that is not this rank
};

/// What a round is made of: in this order or, through host memory, in every other block in the reverse one. Were all
/// blocks to send at the same time, and then all to take, links would carry one way only at any time. (Between peers it
/// changes nothing.) False: `reduce` was.
template <class Send, class Reduce, class Take>
__device__ __forceinline__ bool run_round(const Ring& ring, Send&& send, Reduce&& reduce, Take&& take) {
  const bool reversed = ring.staged && blockIdx.x % 2 != 0;
  bool done = true;
#pragma unroll 1
  for (int i = 0; i < 3; ++i) {
    const int step = reversed ? 2 - i : i;
    if (step == 0) send();
    if (step == 1) done = reduce();
    if (step == 2) take();
  }
  return done;
}

}  // namespace strait::kernels
