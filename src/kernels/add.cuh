#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/other_types.cuh"
#include "kernels/pair_arithmetic.cuh"
#include "kernels/protocol.cuh"

/// The kernel of Add (launch.hpp).
namespace strait::kernels {

struct AddRound {
  int failed;
};

/// Waits until every peer's chunk has arrived, with one thread for each peer. Returns false if the block gave up.
__device__ __forceinline__ bool await_contributions(const Add& add, std::uint32_t round, AddRound& shared) {
  const Ring& ring = add.ring;
  const std::uint32_t peer = threadIdx.x;
  if (peer < ring.ranks && peer != ring.rank) {
    const std::uint32_t* const word = add.contributed[peer] + round % 2;
    PollMonitor monitor;
    while (static_cast<std::int32_t>(acquire_count(word) - (round + 1)) < 0)
      if (monitor.must_give_up(ring, peer, blockIdx.x, false)) {
        shared.failed = 1;
        break;
      }
  }
  __syncthreads();
  return shared.failed == 0;
}

/// Granules [first, last) of a chunk.
struct Share {
  std::uint32_t first;
  std::uint32_t last;
};

/// Adds whole granules of aligned memory, in rank order: the case that must be fast. The rate depends on the number of
/// loads that a thread has in flight, so it loads several granules before it adds.
template <DataType type, std::uint32_t ranks>
__device__ __forceinline__ void add_whole(const Granule* const (&from)[ranks], Granule* to, const Share& share,
                                          float scale) {
  constexpr std::uint32_t batch = 12 / ranks;
  for (std::uint32_t begin = share.first + threadIdx.x; begin < share.last; begin += batch * blockDim.x) {
    Granule values[batch][ranks];
#pragma unroll
    for (std::uint32_t b = 0; b < batch; ++b) {
      const std::uint32_t wanted = begin + b * blockDim.x;
      // One is loaded again, which is cheaper than to leave it out.
      const std::uint32_t number = wanted < share.last ? wanted : begin;
#pragma unroll
      for (std::uint32_t rank = 0; rank < ranks; ++rank) values[b][rank] = from[rank][number];
    }
    bool has_nan = false;
#pragma unroll
    for (std::uint32_t b = 0; b < batch; ++b) {
      PairSum<type> sum;
      sum.first(values[b][0]);
#pragma unroll
      for (std::uint32_t rank = 1; rank < ranks; ++rank) sum.next(values[b][rank]);
      values[b][0] = sum.result(scale, has_nan);
    }
    if (has_nan) {
#pragma unroll
      for (std::uint32_t b = 0; b < batch; ++b) values[b][0] = with_canonical_nan<type>(values[b][0]);
    }
#pragma unroll
    for (std::uint32_t b = 0; b < batch; ++b)
      if (begin + b * blockDim.x < share.last) to[begin + b * blockDim.x] = values[b][0];
  }
}

/// A chunk at `offset` of the buffers and in slot `slot` of the windows.
struct AddedChunk {
  std::size_t offset;
  std::uint32_t slot;
  std::uint32_t bytes;
};

__device__ __forceinline__ const Granule* window_of(const Add& add, const AddedChunk& chunk, std::uint32_t rank) {
  return reinterpret_cast<const Granule*>(add.windows[rank] + std::size_t{chunk.slot} * add.chunk_bytes);
}

/// Adds whole granules if there are `ranks` ranks and memory is aligned. Otherwise returns false and does nothing.
template <DataType type, std::uint32_t ranks>
__device__ __forceinline__ bool add_if_whole(const Add& add, const AddedChunk& chunk, const Share& share, float scale) {
  const auto* const input = add.input + chunk.offset;
  auto* const output = add.output + chunk.offset;
  const auto bits = reinterpret_cast<std::uintptr_t>(input) | reinterpret_cast<std::uintptr_t>(output);
  if (add.ring.ranks != ranks || bits % sizeof(Granule) != 0) return false;
  const Granule* from[ranks];
#pragma unroll
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    from[rank] = rank == add.ring.rank ? reinterpret_cast<const Granule*>(input) : window_of(add, chunk, rank);
  add_whole<type, ranks>(from, reinterpret_cast<Granule*>(output), share, scale);
  return true;
}

__device__ __forceinline__ Operation operation_of(const Add& add) { return {add.op, add.type, add.ring.averaged, {}}; }

inline constexpr std::uint32_t add_batch = 2;      ///< granules that a thread adds at a time
inline constexpr std::uint32_t ranks_at_once = 4;  ///< ranks whose granules a thread loads at the same time

/// Adds with any alignment, length, operation and number of ranks.
template <DataType type, bool sum_only>
__device__ __forceinline__ void add_any(const Add& add, const AddedChunk& chunk, const Share& share) {
  const Ring& ring = add.ring;
  const Operation operation = operation_of(add);
  const UserBytes<16> input(add.input + chunk.offset), output(add.output + chunk.offset);
  const auto valid = [&](std::uint32_t number) { return valid_bytes(number * 16, chunk.bytes, 16); };
  for (std::uint32_t begin = share.first + threadIdx.x; begin < share.last; begin += add_batch * blockDim.x) {
    std::uint32_t numbers[add_batch];
#pragma unroll
    for (std::uint32_t b = 0; b < add_batch; ++b) {
      const std::uint32_t wanted = begin + b * blockDim.x;
      numbers[b] = wanted < share.last ? wanted : begin;
    }
    Reduction<type, sum_only, Granule> sums[add_batch];
    for (std::uint32_t group = 0; group < ring.ranks; group += ranks_at_once) {
      Granule values[ranks_at_once][add_batch];
#pragma unroll
      for (std::uint32_t i = 0; i < ranks_at_once; ++i) {
        const std::uint32_t rank = group + i;
        if (rank >= ring.ranks) break;
#pragma unroll
        for (std::uint32_t b = 0; b < add_batch; ++b)
          values[i][b] = rank != ring.rank ? window_of(add, chunk, rank)[numbers[b]]
                                           : input.load(numbers[b] * std::size_t{16}, valid(numbers[b]));
      }
#pragma unroll
      for (std::uint32_t i = 0; i < ranks_at_once; ++i) {
        if (group + i >= ring.ranks) break;
#pragma unroll
        for (std::uint32_t b = 0; b < add_batch; ++b) {
          if (group + i == 0) {
            sums[b].first(values[i][b], operation);
          } else {
            sums[b].next(values[i][b], operation);
          }
        }
      }
    }
#pragma unroll
    for (std::uint32_t b = 0; b < add_batch; ++b)
      if (begin + b * blockDim.x < share.last)  // in place, storing twice would add to the thread's own sum
        output.store(numbers[b] * std::size_t{16}, valid(numbers[b]), sums[b].result(operation));
  }
}

/// Adds this block's share of a chunk. What add_if_whole() does not add is left to add_any().
template <DataType type, bool sum_only>
__device__ __forceinline__ void add_share(const Add& add, const AddedChunk& chunk) {
  const std::uint32_t granules = (chunk.bytes + 15) / 16, each = (granules + gridDim.x - 1) / gridDim.x;
  const std::uint32_t first = blockIdx.x * each;
  Share share{first, first + each < granules ? first + each : granules};
  with_pair_sum<type>(operation_of(add), [&]<DataType t>(float scale) {
    const std::uint32_t whole = chunk.bytes / 16;
    const Share fast{share.first, share.last < whole ? share.last : whole};
    if (add_if_whole<t, 2>(add, chunk, fast, scale) || add_if_whole<t, 3>(add, chunk, fast, scale) ||
        add_if_whole<t, 4>(add, chunk, fast, scale))
      share.first = share.first < fast.last ? fast.last : share.first;
  });
  add_any<type, sum_only>(add, chunk, share);
}

/// Tells all ranks that a chunk has been added. Called by one thread of each block, after a barrier behind the block's
/// share; the last block does it. No block can reach the next chunk in the same slot before, because that is only sent
/// then.
__device__ __forceinline__ void tell_added(const Add& add, std::uint32_t round) {
  __threadfence_system();
  std::uint32_t* const shares = add.shares_done + round % add.depth;
  if (count_up(shares) + 1 != gridDim.x) return;
  store_count(shares, 0);
  __threadfence_system();
  for (std::uint32_t rank = 0; rank < add.ring.ranks; ++rank) store_count(add.added[rank], round + 1);
}

template <KernelType kind, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) add_chunks(const __grid_constant__ Add add) {
  auto& shared = shared_memory<AddRound>();
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  after_predecessor();
  std::uint32_t round = 0;
  for (std::size_t offset = 0; offset < add.bytes; offset += add.chunk_bytes, ++round) {
    if (!await_contributions(add, round, shared)) return;
    const std::size_t left = add.bytes - offset;
    const std::uint32_t bytes = left < add.chunk_bytes ? static_cast<std::uint32_t>(left) : add.chunk_bytes;
    add_share<type_of(kind), sum_only>(add, {offset, round % add.depth, bytes});
    __syncthreads();
    if (threadIdx.x == 0) tell_added(add, round);
  }
}

}  // namespace strait::kernels
