#pragma once

#include "kernels/protocol.cuh"

/// Granules at aligned addresses, and how they are dealt to the warps of a block.
namespace strait::kernels {

template <class... Pointers>
__device__ __forceinline__ bool are_granules(std::uint32_t bytes, Pointers... at) {
  return ((bytes | ... | static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at))) % sizeof(Granule)) == 0;
}

/// The granules of a chunk that a thread moves together: every 32nd one of [first, end).
struct Segment {
  std::uint32_t first;
  std::uint32_t end;
};

template <int batch>
__device__ __forceinline__ void load_granules(const std::byte* from, const Segment& segment, Granule (&values)[batch]) {
  from += segment.first * sizeof(Granule);
#pragma unroll
  for (std::uint32_t b = 0; b < batch; ++b)
    values[b] = segment.first + b * warp_threads < segment.end ? load_plain(from + b * piece_bytes) : Granule{};
}
template <int batch>
__device__ __forceinline__ void store_granules(std::byte* to, const Segment& segment, const Granule (&values)[batch]) {
  to += segment.first * sizeof(Granule);
#pragma unroll
  for (std::uint32_t b = 0; b < batch; ++b)
    if (segment.first + b * warp_threads < segment.end) store_plain(to + b * piece_bytes, values[b]);
}

/// Deals the granules of several chunks to the warps of a block. A thread gets up to `batch` granules at a time, but
/// not so many that some warps have nothing to do. The first segment of a chunk goes to the warp after the one that got
/// the last segment of the previous chunk.
template <int batch>
class Dealer {
 public:
  /// `pieces`: number of pieces of all chunks together.
  __device__ explicit Dealer(std::uint32_t pieces)
      : warps_(blockDim.x / warp_threads), next_(threadIdx.x / warp_threads) {
    while ((1 << shift_) < batch && (warps_ << shift_) < pieces) ++shift_;
  }
  template <class Body>
  __device__ __forceinline__ void deal(std::uint32_t bytes, Body&& body) {
    const std::uint32_t granules = bytes / sizeof(Granule), length = warp_threads << shift_;
    const std::uint32_t segments = (granules + length - 1) / warp_threads >> shift_;
    for (; next_ < segments; next_ += warps_) {
      const std::uint32_t begin = next_ * length;
      const std::uint32_t end = begin + length < granules ? begin + length : granules;
      body(Segment{begin + threadIdx.x % warp_threads, end});
    }
    next_ -= segments;
  }

 private:
  std::uint32_t warps_;
  std::uint32_t next_;  ///< next segment of this warp, counted from the beginning of the chunk
  std::uint32_t shift_ = 0;
};

inline constexpr int copy_batch = 8;
using CopyDealer = Dealer<copy_batch>;

__device__ __forceinline__ void copy_granules(CopyDealer& dealer, std::byte* to, const std::byte* from,
                                              std::uint32_t bytes) {
  dealer.deal(bytes, [&](const Segment& segment) {
    Granule values[copy_batch];
    load_granules(from, segment, values);
    store_granules(to, segment, values);
  });
}

/// Runs `body` with registers of its own: there are not enough for the loops over granules and everything else
/// together. What `body` captures by reference lives in memory instead.
template <class Body>
STRAIT_NOINLINE __device__ auto out_of_line(const Body& body) {
  return body();
}

}  // namespace strait::kernels
