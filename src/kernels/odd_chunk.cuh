#pragma once

#include "kernels/shifted.cuh"
#include "kernels/user_bytes.cuh"

namespace strait::kernels {

/// A chunk at any address and of any length, as granules that begin at its first byte; the last one may be incomplete.
/// A granule is assembled from two aligned loads if both lie within the chunk. Nothing outside the chunk is read or
/// written.
class OddChunk {
 public:
  __device__ OddChunk(const std::byte* data, std::uint32_t bytes)
      : data_(const_cast<std::byte*>(data)),
        bytes_(bytes),
        shift_(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data)) % granule_bytes) {
    const std::uint32_t aligned = (bytes + shift_) / granule_bytes;
    begin_ = shift_ == 0 ? 0 : 1;
    end_ = aligned < begin_ ? 0 : aligned - begin_;
  }
  /// Returns the length of a chunk for a dealer: rounded up to whole granules.
  static __device__ std::uint32_t padded(std::uint32_t bytes) {
    return (bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
  }

  template <int batch>
  __device__ __forceinline__ void load(const Segment& segment, Granule (&values)[batch]) const {
    load_inner(data_ - shift_, segment, values);
    if (shift_ != 0) {
      Granule nexts[batch];
      load_inner(data_ - shift_ + granule_bytes, segment, nexts);
#pragma unroll
      for (int b = 0; b < batch; ++b) values[b] = shifted(values[b], nexts[b], shift_);
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const std::uint32_t number = segment.first + b * warp_threads;
      if (number < segment.end && !is_inner(number))
        values[b] = OddBytes::load(data_ + number * granule_bytes, valid_bytes_of(number), 1);
    }
  }
  template <int batch>
  __device__ __forceinline__ void store(const Segment& segment, const Granule (&values)[batch]) const {
    const std::uint32_t alignment = shift_ % 4 == 0 ? 4 : shift_ % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const std::uint32_t number = segment.first + b * warp_threads;
      if (number < segment.end)
        OddBytes::store(data_ + number * granule_bytes, valid_bytes_of(number), alignment, values[b]);
    }
  }

 private:
  static constexpr std::uint32_t granule_bytes = sizeof(Granule);
  /// Returns whether a granule lies within those aligned granules that are inside the chunk.
  __device__ bool is_inner(std::uint32_t number) const { return number >= begin_ && number < end_; }
  __device__ std::uint32_t valid_bytes_of(std::uint32_t number) const {
    const std::uint32_t left = bytes_ - number * granule_bytes;
    return left < granule_bytes ? left : granule_bytes;
  }
  template <int batch>
  __device__ __forceinline__ void load_inner(const std::byte* from, const Segment& segment,
                                             Granule (&values)[batch]) const {
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const std::uint32_t number = segment.first + b * warp_threads;
      const bool is_there = number < segment.end && is_inner(number);
      values[b] = is_there ? load_plain(from + number * granule_bytes) : Granule{};
    }
  }
  std::byte* data_;
  std::uint32_t bytes_;
  std::uint32_t shift_;        ///< distance of the chunk's granules from the aligned granules in which they begin
  std::uint32_t begin_, end_;  ///< the granules that lie in aligned granules inside the chunk
};

template <int batch>
__device__ __forceinline__ void load_granules(const OddChunk& from, const Segment& segment, Granule (&values)[batch]) {
  from.load(segment, values);
}

}  // namespace strait::kernels
