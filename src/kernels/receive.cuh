#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/lane.cuh"

/// What the warps of a block do with what comes by protocols whose data bears flags, and of bulk at any address and of
/// any length.
namespace strait::kernels {

/// A granule that is to come: where, and from whom. `slot` == nullptr: none.
struct Awaited {
  const std::byte* slot;
  std::uint64_t flag;
  std::uint32_t peer;
};

/// Zero, of which the compiler knows no more than that it comes of all values: what is compared with it waits for all
/// of them. Else the first would be looked at before the last is under way, wherever the compiler finds that it has a
/// register less to keep.
template <int count>
__device__ __forceinline__ std::uint32_t zero_once_loaded(const Ring& ring, const Granule (&values)[count]) {
  static_assert(std::has_single_bit(max_ranks));  // no rank has that bit
  std::uint64_t all = 0;
#pragma unroll
  for (const Granule& value : values) all ^= value.low;
  return static_cast<std::uint32_t>(all) & ring.rank & max_ranks;
}

/// Loads granules until all have come, by a whole warp together. False: gave up.
///
/// `at_once`: all are under way before any is looked at. Behind a condition each load waits for the one before (three
/// from host memory take 2800 cycles together, and 7200 one by one). So a word of this GPU that is nobody's is loaded
/// where nothing comes, for each block another, for at the same place they would wait for one another. Else there is
/// less to load, and less often: memory that lines come to has more room for them (broadcasts of 2 MB take a fifth less
/// time). `has_more`, to all threads alike: not only the first may come.
template <class P, bool at_once, int count>
__device__ __forceinline__ bool receive(const Ring& ring, const Awaited (&awaited)[count], Granule (&values)[count],
                                        bool has_more = true) {
  constexpr std::uint32_t none = max_ranks;
  const auto* const nothing = reinterpret_cast<const std::byte*>(
      &ring.counts[lane_index(Protocol::lines, Cast::single, ring.rank, blockIdx.x)]);
  const auto slot_or_nothing = [&](int i) { return awaited[i].slot != nullptr ? awaited[i].slot : nothing; };
  Patience patience;
  for (;;) {
    std::uint64_t zero = 0;
    if constexpr (at_once) {
      values[0] = load_granule(slot_or_nothing(0));
      if (has_more) {
#pragma unroll
        for (int i = 1; i < count; ++i) values[i] = load_granule(slot_or_nothing(i));
        zero = zero_once_loaded(ring, values);
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (awaited[i].slot != nullptr) values[i] = load_granule(awaited[i].slot);
    }
    // From whom is worked out here or, where that would keep loads from registers, only of what is late.
    std::uint32_t missing = none;
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (awaited[i].slot != nullptr && !P::has_come(values[i], awaited[i].flag ^ zero))
        missing = at_once ? static_cast<std::uint32_t>(i) : awaited[i].peer;
    if (!__any_sync(0xffffffffu, missing != none)) break;
    std::uint32_t peer = missing;
#pragma unroll
    for (int i = 0; at_once && i < count; ++i)
      if (missing == static_cast<std::uint32_t>(i)) peer = awaited[i].peer;
    const bool gives_up = missing != none && patience.spent(ring, peer, blockIdx.x, false);
    if (__any_sync(0xffffffffu, gives_up)) return false;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = P::unpacked(values[i]);
  return true;
}

/// Takes all chunks to where they belong. False: gave up.
template <class P>
__device__ __forceinline__ bool collect(const Ring& ring, const Incoming* chunks, std::uint32_t count,
                                        std::uint32_t pieces) {
  const std::uint32_t tasks = count * pieces;
  return for_tasks<batch_size>(tasks, [&](const std::uint32_t(&numbers)[batch_size]) {
    Task batch[batch_size];
    Awaited awaited[batch_size];
    Granule values[batch_size];
    clear<P>(batch);
    clear<P>(awaited);
    clear<P>(values);
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      awaited[b].slot = nullptr;
      if (numbers[b] >= tasks) continue;
      batch[b] = task_of<P>(numbers[b], chunks, count);
      const Incoming& chunk = chunks[batch[b].chunk];
      if (batch[b].place.active) awaited[b] = {chunk.slot + batch[b].place.slot_offset, chunk.flag, chunk.peer};
    }
    if (!receive<P, P::protocol != Protocol::lines>(ring, awaited, values)) return false;
#pragma unroll
    for (int b = 0; b < batch_size; ++b)
      if (numbers[b] < tasks)
        UserBytes<P::stride>(chunks[batch[b].chunk].destination)
            .store(batch[b].place.offset, batch[b].place.valid, values[b]);
    return true;
  });
}

}  // namespace strait::kernels
