#pragma once

#include "kernels/protocol.cuh"

/// If slots have flags of their own, a block may serve several lanes at once, each with a chunk, a slot, a flag and
/// counters of its own. So a few blocks move much data between two fences. The other end sees only lanes, and not which
/// blocks serve them. (Slots joined into larger ones would need a layout, flags and counters for every number of blocks
/// that a call may ask for.)
namespace strait::kernels {

/// Which peer and which of the block's `width` lanes this thread manages. The first threads of a block manage one lane
/// of one peer each.
struct LaneManager {
  /// `block`: the number of the block among the `blocks` blocks of the call, whose lanes begin with `first_lane`.
  /// `thread`: the number of the thread among those that manage the same set of lanes.
  __device__ LaneManager(const Ring& ring, std::uint32_t width, std::uint32_t block, std::uint32_t blocks,
                         std::uint32_t first_lane, std::uint32_t thread = threadIdx.x) {
    nth = thread / ring.ranks;
    manages = thread < ring.ranks * width;
    if (!manages) nth = 0;
    peer = manages ? thread - nth * ring.ranks : 0;
    lane = first_lane + block + nth * blocks;
    has_peer = manages && peer != ring.rank;
    position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
    chunk = nth * (ring.ranks - 1) + position;
  }
  __device__ LaneManager(const Ring& ring, std::uint32_t width) : LaneManager(ring, width, blockIdx.x, gridDim.x, 0) {}
  std::uint32_t nth;  ///< which of the block's lanes
  std::uint32_t lane;
  std::uint32_t peer;
  std::uint32_t position;  ///< the peer's position (position_of())
  std::uint32_t chunk;     ///< index of the chunk to or from this peer among those of all of the block's lanes
  bool manages;
  bool has_peer;  ///< the thread manages a peer, and not this rank's own part
};

/// Carries out the steps of a round in this order; through host memory every other block uses the reverse order. If all
/// blocks sent at the same time, and then all received, links would carry data in one direction only at any time.
/// (Between peers' memory the order makes no difference.) Returns false if `reduce` did.
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
