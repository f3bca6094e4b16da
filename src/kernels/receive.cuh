#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/lane.cuh"

/// How the warps of a block receive data over protocols that send flags with it, and in bulk at any address and with
/// any length.
namespace strait::kernels {

/// A granule that is to arrive: its address, and from which peer. `slot` == nullptr: none.
struct Awaited {
  const std::byte* slot;
  std::uint64_t flag;
  std::uint32_t peer;
};

/// Returns zero, but in a way that the compiler cannot see, and that depends on all values. So a comparison that uses
/// the result waits for all loads. Otherwise the compiler may have the first value examined before the last load is
/// issued, wherever that saves it a register.
template <int count>
__device__ __forceinline__ std::uint32_t zero_once_loaded(const Ring& ring, const Granule (&values)[count]) {
  static_assert(std::has_single_bit(max_ranks));  // no rank has this bit
  std::uint64_t all = 0;
#pragma unroll
  for (const Granule& value : values) all ^= value.low;
  return static_cast<std::uint32_t>(all) & ring.rank & max_ranks;
}

/// Loads granules until all have arrived. Called by a whole warp. Returns false if it gave up.
///
/// `at_once`: all loads are issued before any result is examined. Under a condition each load waits for the one before
/// (three loads from host memory take 2800 cycles together, and 7200 one by one). So where nothing arrives, an unused
/// word of this GPU is loaded; each block has another one, because loads from the same place would wait for one
/// another. Without `at_once` there is less to load, and fewer loads are made: the memory in which lines arrive then
/// has more capacity for these (broadcasts of 2 MB take a fifth less time). `has_more`, the same for all threads:
/// granules other than the first may arrive, too.
template <class P, bool at_once, int count>
__device__ __forceinline__ bool receive(const Ring& ring, const Awaited (&awaited)[count], Granule (&values)[count],
                                        bool has_more = true) {
  constexpr std::uint32_t none = max_ranks;
  const auto* const nothing = reinterpret_cast<const std::byte*>(
      &ring.counts[lane_index(Protocol::lines, Cast::single, ring.rank, blockIdx.x)]);
  const auto slot_or_nothing = [&](int i) { return awaited[i].slot != nullptr ? awaited[i].slot : nothing; };
  PollMonitor monitor;
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
    // The late peer is determined here, or, if that would take registers from the loads, below and only when one is
    // late.
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
    const bool gives_up = missing != none && monitor.must_give_up(ring, peer, blockIdx.x, false);
    if (__any_sync(0xffffffffu, gives_up)) return false;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = P::unpacked(values[i]);
  return true;
}

/// Takes all chunks to where they belong. Returns false if it gave up.
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
