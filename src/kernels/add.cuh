#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/wire.cuh"

/// The kernel of Add (launch.hpp).
namespace strait::kernels {

struct AddRound {
  int failed;
};

/// Waits until every peer's chunk is there, each by a thread. False: gave up.
__device__ __forceinline__ bool await_contributions(const Add& add, std::uint32_t round, AddRound& shared) {
  const Ring& ring = add.ring;
  const std::uint32_t peer = threadIdx.x;
  if (peer < ring.ranks && peer != ring.rank) {
    const std::uint32_t* const word = add.contributed[peer] + round % 2;
    Patience patience;
    while (static_cast<std::int32_t>(acquire_count(word) - (round + 1)) < 0)
      if (patience.spent(ring, peer, blockIdx.x, false)) {
        shared.failed = 1;
        break;
      }
  }
  __syncthreads();
  return shared.failed == 0;
}

inline constexpr std::uint32_t add_batch = 4;      ///< granules that a thread adds at a time
inline constexpr std::uint32_t ranks_at_once = 4;  ///< whose granules it has in flight together

/// Granules [first, last) of a chunk of `bytes`, which lies at `offset` of the whole and in `slot` of the windows.
template <DataType type, bool sum_only>
__device__ __forceinline__ void add_share(const Add& add, std::size_t offset, std::uint32_t slot, std::uint32_t bytes,
                                          std::uint32_t first, std::uint32_t last) {
  const Ring& ring = add.ring;
  const Operation operation{add.op, ring.averaged, 0};
  const UserBytes<16> input(add.input + offset), output(add.output + offset);
  for (std::uint32_t begin = first + threadIdx.x; begin < last; begin += add_batch * blockDim.x) {
    std::uint32_t numbers[add_batch];
#pragma unroll
    for (std::uint32_t b = 0; b < add_batch; ++b) {
      const std::uint32_t number = begin + b * blockDim.x;
      numbers[b] = number < last ? number : last - 1;  // again: cheaper than asking before each load
    }
    Reduction<type, sum_only, Granule> sums[add_batch];
    for (std::uint32_t group = 0; group < ring.ranks; group += ranks_at_once) {
      Granule values[ranks_at_once][add_batch];
#pragma unroll
      for (std::uint32_t i = 0; i < ranks_at_once; ++i) {
        const std::uint32_t rank = group + i;
        if (rank >= ring.ranks) break;
        const auto* const chunk =
            reinterpret_cast<const Granule*>(add.windows[rank] + std::size_t{slot} * add.chunk_bytes);
#pragma unroll
        for (std::uint32_t b = 0; b < add_batch; ++b)
          values[i][b] = rank != ring.rank
                             ? chunk[numbers[b]]
                             : input.load(numbers[b] * std::size_t{16}, valid_bytes(numbers[b] * 16, bytes, 16));
      }
#pragma unroll
      for (std::uint32_t i = 0; i < ranks_at_once; ++i) {
        if (group + i >= ring.ranks) break;
#pragma unroll
        for (std::uint32_t b = 0; b < add_batch; ++b) {
          if (group + i == 0) {
            sums[b].first(values[i][b]);
          } else {
            sums[b].next(values[i][b], operation);
          }
        }
      }
    }
#pragma unroll
    for (std::uint32_t b = 0; b < add_batch; ++b)
      if (begin + b * blockDim.x < last)  // in place, one that stores twice would add to its own sum
        output.store(numbers[b] * std::size_t{16}, valid_bytes(numbers[b] * 16, bytes, 16), sums[b].result(operation));
  }
}

/// By one thread, after a barrier behind its block's share of a chunk. The last of the blocks tells all ranks. Nobody
/// comes to the same slot's next chunk before that: it is sent only then.
__device__ __forceinline__ void tell_added(const Add& add, std::uint32_t round) {
  __threadfence_system();
  std::uint32_t* const shares = add.shares_done + round % add.depth;
  if (count_up(shares) + 1 != gridDim.x) return;
  store_count(shares, 0);
  __threadfence_system();
  for (std::uint32_t rank = 0; rank < add.ring.ranks; ++rank) store_count(add.added[rank], round + 1);
}

template <DataType type, bool sum_only>
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
    const std::uint32_t granules = (bytes + 15) / 16, share = (granules + gridDim.x - 1) / gridDim.x;
    const std::uint32_t first = blockIdx.x * share, last = first + share < granules ? first + share : granules;
    add_share<type, sum_only>(add, offset, round % add.depth, bytes, first, last);
    __syncthreads();
    if (threadIdx.x == 0) tell_added(add, round);
  }
}

}  // namespace strait::kernels
