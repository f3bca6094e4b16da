#pragma once

#include "kernels/granules.cuh"
#include "kernels/lane.cuh"
#include "kernels/lane_manager.cuh"
#include "kernels/shifted.cuh"

/// The kernel of StraightExchange (launch.hpp), which writes directly into the peers' outputs instead of slots. Of a
/// lane's slots only the flags are used. The first flag says that this rank's output may be written, because its stream
/// has reached the call. The second says that everything has been written which the peer's block of this lane writes.
namespace strait::kernels {

struct StraightMemory {
  std::uint32_t claimed[max_threads / warp_threads];
  int failed;
};

/// Claims the warp's next chunk from the chunks of all messages, which all blocks share. Some SMs store up to a third
/// faster than others, depending on how many share an output path of the GPU's clusters of SMs. Equal shares would
/// therefore leave links idle at the end.
__device__ __forceinline__ std::uint32_t claim_chunk(const Ring& ring, StraightMemory& shared) {
  std::uint32_t& claimed = shared.claimed[threadIdx.x / warp_threads];
  if (threadIdx.x % warp_threads == 0) claimed = count_up(&ring.launch_counts->chunks_claimed);
  __syncwarp();
  const std::uint32_t chunk = claimed;
  __syncwarp();
  return chunk;
}

/// Copies a chunk. Called by a warp.
__device__ __forceinline__ void copy_straight(const std::byte* from, std::byte* to, std::uint32_t bytes) {
  const std::uint32_t thread = threadIdx.x % warp_threads;
  if (are_granules(bytes, from, to)) {
    const std::uint32_t granules = bytes / sizeof(Granule);
    for (std::uint32_t first = thread; first < granules; first += copy_batch * warp_threads) {
      const Segment segment{first, granules};
      Granule values[copy_batch];
      load_granules(from, segment, values);
      store_granules(to, segment, values);
    }
    return;
  }
  out_of_line([=] { copy_by_warp(from, to, bytes); });
}

/// Copies chunks until none is left. Called by all threads of a block. Chunks for the rank after this one come first,
/// and this rank's own last.
__device__ __forceinline__ void push_straight(const StraightExchange& call, StraightMemory& shared) {
  const Ring& ring = call.ring;
  const std::size_t bytes = call.send[0].bytes;
  const std::uint32_t chunk_bytes = call.send[0].chunk_bytes;
  const auto chunks = static_cast<std::uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes) * ring.ranks;
  for (;;) {
    const std::uint32_t chunk = claim_chunk(ring, shared);
    if (chunk >= chunks) return;
    const std::uint32_t after = ring.rank + chunk % ring.ranks + 1;
    const std::uint32_t to = after < ring.ranks ? after : after - ring.ranks;
    const std::size_t offset = std::size_t{chunk / ring.ranks} * chunk_bytes, left = bytes - offset;
    const std::byte* const from = call.send[to].data + offset;
    std::byte* const destination = call.destinations[to] + offset;
    if (from != destination)
      copy_straight(from, destination, left < chunk_bytes ? static_cast<std::uint32_t>(left) : chunk_bytes);
  }
}

/// Counts the end of a block; the last block resets the counters for the next launch. Called by one thread of each
/// block at its end.
__device__ __forceinline__ void end_claiming(LaunchCounts& counts) {
  if (count_up(&counts.blocks_done) + 1 != gridDim.x) return;
  store_count(&counts.chunks_claimed, 0);
  store_count(&counts.blocks_done, 0);
}

/// A template only so that a header may define it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) straight_copy(const __grid_constant__ StraightExchange call) {
  fetch_arguments(call);
  auto& shared = shared_memory<StraightMemory>();
  int& failed = shared.failed;
  const Ring& ring = call.ring;
  const LaneManager manager(ring, 1);
  Lane<Bulk> lane(ring, manager.peer, Cast::single, manager.lane);
  if (threadIdx.x == 0) failed = 0;
  __syncthreads();
  const std::uint32_t before = begin_launch(ring);
  const bool goes_on = manager.manages && lane.resume();
  mark_start(ring, before);
  if (manager.manages && !goes_on) failed = 1;
  const auto meet = [&] {
    if (!goes_on || !manager.has_peer) return;
    const std::uint16_t hash = call.send[manager.peer].call_hash;
    Outgoing told;
    Incoming heard;
    const bool is_free = lane.next_slot(nullptr, 1, hash, told, manager.lane);
    if (is_free) publish(told);
    lane.expect(nullptr, 1, hash, heard);
    if (!is_free || !wait_for_chunk(ring, heard, manager.lane)) failed = 1;
  };
  out_of_line(meet);
  __syncthreads();
  bool gives_up = failed != 0;
  if (!gives_up) {
    push_straight(call, shared);
    __syncthreads();
    if (manager.has_peer) __threadfence_system();
    out_of_line(meet);
    __syncthreads();
    gives_up = failed != 0;
  }
  if (threadIdx.x == 0) end_claiming(*ring.launch_counts);
  if (manager.has_peer) lane.save(gives_up);
  count_finished_block(ring);
}

}  // namespace strait::kernels
