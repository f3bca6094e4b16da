#pragma once

#include "kernels/segments.cuh"

/// Copies of chunks in bulk between addresses with different offsets from multiples of 16 bytes, with any length. All
/// stores are of whole granules nevertheless, each assembled from two granules of the source. With stores of the size
/// to which both addresses are aligned, data takes up to five times as long across a link (two H200).
namespace strait::kernels {

/// Returns the granule that begins `shift` bytes (less than 16) after the beginning of `first`; `second` follows
/// `first`.
__device__ __forceinline__ Granule shifted(const Granule& first, const Granule& second, std::uint32_t shift) {
  const bool is_far = shift >= 8;
  const std::uint64_t words[] = {is_far ? first.high : first.low, is_far ? second.low : first.high,
                                 is_far ? second.high : second.low};
  const std::uint32_t bits = shift % 8 * 8;
  if (bits == 0) return {words[0], words[1]};
  return {words[0] >> bits | words[1] << (64 - bits), words[1] >> bits | words[2] << (64 - bits)};
}

/// A chunk as aligned granules of the destination, and the bytes before and after them. The source is read only within
/// the chunk.
class ShiftedChunk {
 public:
  __device__ ShiftedChunk(const std::byte* from, std::byte* to, std::uint32_t bytes)
      : from_(from), to_(to), bytes_(bytes) {
    begin_ = (granule_bytes - rest(to)) % granule_bytes;
    shift_ = rest(from + begin_);
    if (begin_ < shift_) begin_ += granule_bytes;
    const std::uint32_t first_end = begin_ + granule_bytes + (shift_ == 0 ? 0 : granule_bytes - shift_);
    granules_ = first_end > bytes ? 0 : (bytes - first_end) / granule_bytes + 1;
    if (granules_ == 0) begin_ = bytes;
  }
  __device__ std::uint32_t granules() const { return granules_; }
  /// Copies the bytes before and after the granules. Called by `threads` threads, of which this is number `thread`.
  __device__ __forceinline__ void copy_ends(std::uint32_t thread, std::uint32_t threads) const {
    const std::uint32_t end = begin_ + granules_ * granule_bytes;
    for (std::uint32_t at = thread; at < begin_; at += threads) to_[at] = from_[at];
    for (std::uint32_t at = end + thread; at < bytes_; at += threads) to_[at] = from_[at];
  }
  __device__ __forceinline__ void copy(const Segment& segment) const {
    constexpr int batch = copy_batch / 2;  // each granule takes two loads
    const std::byte* const source = from_ + begin_ - shift_;
    for (std::uint32_t first = segment.first; first < segment.end; first += batch * warp_threads) {
      const Segment part{first, segment.end};
      Granule values[batch], nexts[batch];
      load_granules(source, part, values);
      if (shift_ != 0) {
        load_granules(source + granule_bytes, part, nexts);
#pragma unroll
        for (int b = 0; b < batch; ++b) values[b] = shifted(values[b], nexts[b], shift_);
      }
      store_granules(to_ + begin_, part, values);
    }
  }

 private:
  static constexpr std::uint32_t granule_bytes = sizeof(Granule);
  static __device__ std::uint32_t rest(const std::byte* at) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at)) % granule_bytes;
  }
  const std::byte* const from_;
  std::byte* const to_;
  const std::uint32_t bytes_;
  std::uint32_t begin_, granules_;  ///< in `to`
  std::uint32_t shift_;             ///< offset of a destination granule from the source granule in which it begins
};

/// Copies a chunk. Called by a warp.
__device__ __forceinline__ void copy_by_warp(const std::byte* from, std::byte* to, std::uint32_t bytes) {
  const ShiftedChunk chunk(from, to, bytes);
  const std::uint32_t thread = threadIdx.x % warp_threads;
  chunk.copy_ends(thread, warp_threads);
  chunk.copy({thread, chunk.granules()});
}

/// Copies a chunk. Called by all threads of a block. Chunks of aligned granules, as nearly all are, use a plain loop.
__device__ __forceinline__ void copy_by_block(CopyDealer& dealer, std::byte* to, const std::byte* from,
                                              std::uint32_t bytes) {
  if (are_granules(bytes, from, to)) return copy_granules(dealer, to, from, bytes);
  dealer = out_of_line([=] {
    CopyDealer at = dealer;
    const ShiftedChunk chunk(from, to, bytes);
    chunk.copy_ends(threadIdx.x, blockDim.x);
    at.deal(chunk.granules() * sizeof(Granule), [&](const Segment& segment) { chunk.copy(segment); });
    return at;
  });
}

}  // namespace strait::kernels
