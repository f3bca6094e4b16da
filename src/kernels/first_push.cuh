#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/lane.cuh"

namespace strait::kernels {

/// What each thread sends first. It is determined before the previous launch has ended, and loaded before its
/// destination is known.
template <class P>
class FirstPush {
 public:
  /// Of `chunks`, only `source` and `bytes` need be set yet.
  __device__ FirstPush(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces) {
    const std::uint32_t number = threadIdx.x / warp_threads;
    if (number >= count * pieces) return;
    task_ = task_of<P>(number, chunks, count);
    source_ = chunks[task_.chunk].source;
  }
  __device__ void load() { value_ = UserBytes<P::stride>(source_).load(task_.place.offset, task_.place.valid); }
  /// Prefetches instead, for callers that load later.
  __device__ void prefetch() const {
    if (task_.place.valid != 0) kernels::prefetch(source_ + task_.place.offset);
  }
  /// Sends it. Returns how many of push()'s tasks are then done.
  template <class Contribution>
  __device__ std::uint32_t push(const Outgoing* chunks, Contribution&& contribution) const {
    send<P>(chunks[task_.chunk], task_.place, contribution(value_));
    return blockDim.x / warp_threads;
  }

 private:
  Task task_{};
  const std::byte* source_ = nullptr;
  Granule value_{};
};

}  // namespace strait::kernels
