#pragma once

#include "kernels/lane.cuh"
#include "kernels/network.hpp"
#include "kernels/shifted.cuh"

/// The kernel of NetworkExchange (network.hpp). In step k a block waits until the last round that used the slot of
/// round k has been carried out. Then it copies its share of round k there, and copies what round k - network_depth has
/// received, if that is a round of this call, to where it belongs. It does both at the same time, so that data moves in
/// both directions between device and host.
namespace strait::kernels {

/// A block's share of a piece. bytes == 0: none.
struct NetworkShare {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes;
};
struct NetworkMemory {
  NetworkShare shares[max_flows + 1];  ///< of this step, by flow; the one after the flows is what stays with the rank
  std::uint64_t calls, rounds;         ///< totals before this call
  int failed;
};
/// What one thread knows of the proxy's progress; asking again takes a round trip over PCIe.
struct ProxyProgress {
  std::uint64_t calls, rounds;
};

/// Returns this block's share of `bytes` bytes. Shares are contiguous and consist of whole granules, except at the end;
/// the first blocks may have one granule more.
__device__ __forceinline__ NetworkShare share_of(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  constexpr auto granule = static_cast<std::uint32_t>(sizeof(Granule));
  const std::uint32_t granules = (bytes + granule - 1) / granule, each = granules / gridDim.x,
                      more = granules % gridDim.x;
  const std::uint32_t begin = (each * blockIdx.x + (blockIdx.x < more ? blockIdx.x : more)) * granule;
  const std::uint32_t most = (each + (blockIdx.x < more ? 1 : 0)) * granule;
  const std::uint32_t left = begin < bytes ? bytes - begin : 0;
  return {to + begin, from + begin, left < most ? left : most};
}

/// Returns what this block moves of a flow in a step of the call. `first` is the number of the call's first round among
/// all rounds.
__device__ __forceinline__ NetworkShare share_of(const NetworkExchange& exchange, const Flow& flow, std::uint64_t first,
                                                 std::uint32_t step) {
  const std::uint32_t behind = flow.sends ? 0 : network_depth;
  if (step < behind) return {nullptr, nullptr, 0};
  const Chunk piece = piece_of(flow, step - behind);
  // In both directions: the round that is network_depth earlier uses the same slot.
  std::byte* const slot =
      exchange.slots + network_slot(first + step, flow.sends, exchange.slot_bytes) + slot_place(flow, piece);
  std::byte* const data = flow.data + piece.offset;
  return share_of(flow.sends ? slot : data, flow.sends ? data : slot, piece.bytes);
}

/// Copies this block's shares. Called by all threads of the block.
__device__ __forceinline__ void copy_shares(const NetworkShare* shares, std::uint32_t count) {
  std::uint32_t pieces = 0;
  for (std::uint32_t i = 0; i < count; ++i) pieces += (shares[i].bytes + piece_bytes - 1) / piece_bytes;
  CopyDealer dealer(pieces);
  for (std::uint32_t i = 0; i < count; ++i)
    if (shares[i].bytes != 0) copy_by_block(dealer, shares[i].to, shares[i].from, shares[i].bytes);
}

template <class T>
__device__ __forceinline__ void copy_words(T* to, const T* from, std::uint32_t count) {
  static_assert(sizeof(T) % sizeof(std::uint64_t) == 0);
  auto* const words = reinterpret_cast<std::uint64_t*>(to);
  const auto* const given = reinterpret_cast<const std::uint64_t*>(from);
  for (std::uint32_t i = threadIdx.x; i < count * sizeof(T) / sizeof(std::uint64_t); i += blockDim.x)
    words[i] = given[i];
}

/// Tells the proxy in memory what to do. Called by all threads of a block.
__device__ __forceinline__ void describe(const NetworkExchange& exchange) {
  NetworkWords::Description& description = exchange.words->description_of(exchange.counts->calls);
  copy_words(&description.call, &exchange.call, 1);
  copy_words(description.flows, exchange.flows, exchange.call.flow_count);
}

/// Allows the proxy to read what a word announces. Called after a barrier that follows the last write of that.
__device__ __forceinline__ void tell_proxy(NetworkWords::Word& word, std::uint64_t value) {
  __threadfence_system();
  store_word(&word.value, value);
}

/// Waits until the proxy's counter reaches `least`. Called before a barrier that precedes the first use of the slots.
/// It has no deadline of its own: the proxy has deadlines, and knows for which rank it waits. Returns false if the host
/// has raised the abort word.
__device__ __forceinline__ bool await_proxy(const NetworkExchange& exchange, const NetworkWords::Word& word,
                                            std::uint64_t least, std::uint64_t& seen) {
  PollMonitor monitor;
  while (seen < least) {
    seen = acquire_word(&word.value);
    if (seen < least && monitor.must_give_up(exchange.ring, 0, 0, false, [] { return false; })) return false;
  }
  return true;
}

/// Waits until this call may be described, that is, until the last call that used its description has been carried out,
/// and until no message uses the slots' memory any more.
__device__ __forceinline__ bool await_room(const NetworkExchange& exchange, std::uint64_t calls, std::uint64_t messages,
                                           std::uint64_t& seen) {
  const std::uint64_t described = calls < network_depth ? 0 : calls + 1 - network_depth;
  return await_proxy(exchange, exchange.words->calls_done, described < messages ? messages : described, seen);
}

/// Reads the counts with which this launch continues, unless an earlier one gave up. Called by one thread.
__device__ __forceinline__ ProxyProgress resume(const NetworkExchange& exchange, NetworkMemory& shared) {
  const NetworkCounts& counts = *exchange.counts;
  ProxyProgress progress{load_word(&counts.calls_done), load_word(&counts.rounds_done)};
  shared.calls = load_word(&counts.calls);
  shared.rounds = load_word(&counts.rounds);
  shared.failed = acquire_count(&counts.gave_up) != 0 ||
                          !await_room(exchange, shared.calls, load_word(&counts.messages), progress.calls)
                      ? 1
                      : 0;
  return progress;
}

/// Counts the end of a block; the last block stores the counts with which the next call continues. Called by one thread
/// of each block at its end. Once a block has given up, these counts mean nothing.
__device__ __forceinline__ void save(const NetworkExchange& exchange, const NetworkMemory& shared,
                                     const ProxyProgress& progress) {
  NetworkCounts& counts = *exchange.counts;
  const NetworkCall& call = exchange.call;
  if (shared.failed != 0) store_count(&counts.gave_up, 1);
  if (count_up(&counts.blocks_done) + 1 != gridDim.x) return;
  store_count(&counts.blocks_done, 0);
  if (acquire_count(&counts.gave_up) != 0) return;
  store_word(&counts.rounds_done, progress.rounds);
  store_word(&counts.calls_done, progress.calls);
  if (exchange.end_step < steps_of(call)) return;
  store_word(&counts.calls, shared.calls + 1);
  store_word(&counts.rounds, shared.rounds + call.rounds);
  if (call.is_awaited) store_word(&counts.calls_done, shared.calls + 1);
}

/// A template only so that a header may define it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) network_exchange(const __grid_constant__ NetworkExchange exchange) {
  fetch_arguments(exchange);
  auto& shared = shared_memory<NetworkMemory>();
  const NetworkCall& call = exchange.call;
  // A fence takes time, so the thread that fences and tells is not the one that waits.
  const bool waits = threadIdx.x == 0, tells = threadIdx.x == blockDim.x - 1;
  const std::uint32_t before = begin_launch(exchange.ring);
  ProxyProgress progress{};
  if (waits) progress = resume(exchange, shared);
  mark_start(exchange.ring, before);
  __syncthreads();
  const std::uint64_t first = shared.rounds;
  const bool describes = blockIdx.x == 0 && exchange.first_step == 0;
  const bool is_short = call.rounds == 1;  // everything is then told at once, behind one fence
  if (describes && shared.failed == 0) describe(exchange);
  for (std::uint32_t step = exchange.first_step; step < exchange.end_step; ++step) {
    const bool fills = step < call.rounds, takes = step >= network_depth;
    if (!fills && !takes) continue;
    // Rounds since the communicator's beginning: up to and including this one, and up to and including the slot's
    // previous one, which must have been carried out.
    const std::uint64_t slots_end = first + step + 1;
    const std::uint64_t least = slots_end < network_depth ? 0 : slots_end - network_depth;
    if (waits && shared.failed == 0 && !await_proxy(exchange, exchange.words->rounds_done, least, progress.rounds))
      shared.failed = 1;
    for (std::uint32_t i = threadIdx.x; i < call.flow_count; i += blockDim.x)
      shared.shares[i] = share_of(exchange, exchange.flows[i], first, step);
    const bool copies_locally = step == exchange.first_step, posts = describes && tells && step == 0;
    if (waits && copies_locally)
      shared.shares[call.flow_count] =
          share_of(exchange.local_copy_to, exchange.local_copy_from, exchange.local_copy_bytes);
    __syncthreads();
    if (shared.failed != 0) break;
    if (posts && !is_short) tell_proxy(exchange.words->posted, shared.calls + 1);
    copy_shares(shared.shares, call.flow_count);
    __syncthreads();
    // What the slot's last use received has been copied by now, so the proxy may write there.
    if (fills && tells) tell_proxy(exchange.words->pushed[blockIdx.x], slots_end);
    if (posts && is_short) store_word(&exchange.words->posted.value, shared.calls + 1);
    if (copies_locally) copy_shares(shared.shares + call.flow_count, 1);
  }
  if (waits) save(exchange, shared, progress);
  count_finished_block(exchange.ring);
}

}  // namespace strait::kernels
