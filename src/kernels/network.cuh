#pragma once

#include "kernels/lane.cuh"
#include "kernels/network.hpp"
#include "kernels/shifted.cuh"

/// The kernel of NetworkExchange (network.hpp). Step k of a block waits until the last round in the slot of round k has
/// been carried out; then it brings its share of round k there, and takes what came of round k - network_depth, if that
/// is one of this call, to where it belongs: both at once, so that data goes both ways between device and host.
namespace strait::kernels {

/// A block's share of a piece. bytes == 0: none.
struct NetworkShare {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes;
};
struct NetworkMemory {
  NetworkShare shares[max_flows + 1];  ///< of this step, by flow; and of what stays with the rank
  std::uint64_t calls, rounds;         ///< before this call
  int failed;
};
/// What one thread knows of how far the proxy is: asking costs a way over PCIe.
struct ProxyProgress {
  std::uint64_t calls, rounds;
};

/// This block's of so many bytes. Shares follow one another, in whole granules but for the end; the first blocks have
/// one more.
__device__ __forceinline__ NetworkShare share_of(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  constexpr auto granule = static_cast<std::uint32_t>(sizeof(Granule));
  const std::uint32_t granules = (bytes + granule - 1) / granule, each = granules / gridDim.x,
                      more = granules % gridDim.x;
  const std::uint32_t begin = (each * blockIdx.x + (blockIdx.x < more ? blockIdx.x : more)) * granule;
  const std::uint32_t most = (each + (blockIdx.x < more ? 1 : 0)) * granule;
  const std::uint32_t left = begin < bytes ? bytes - begin : 0;
  return {to + begin, from + begin, left < most ? left : most};
}

/// What this block moves of a flow in that step of the call, the first of whose rounds is number `first` of all.
__device__ __forceinline__ NetworkShare share_of(const NetworkExchange& exchange, const Flow& flow, std::uint64_t first,
                                                 std::uint32_t step) {
  const std::uint32_t behind = flow.sends ? 0 : network_depth;
  if (step < behind) return {nullptr, nullptr, 0};
  const Chunk piece = piece_of(flow, step - behind);
  // Of both ways: network_depth rounds before is the same slot.
  std::byte* const slot =
      exchange.slots + network_slot(first + step, flow.sends, exchange.slot_bytes) + slot_place(flow, piece);
  std::byte* const data = flow.data + piece.offset;
  return share_of(flow.sends ? slot : data, flow.sends ? data : slot, piece.bytes);
}

/// By all threads of a block.
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

/// By all threads of a block: what the proxy is to do.
__device__ __forceinline__ void describe(const NetworkExchange& exchange) {
  NetworkWords::Description& description = exchange.words->description_of(exchange.counts->calls);
  copy_words(&description.call, &exchange.call, 1);
  copy_words(description.flows, exchange.flows, exchange.call.flow_count);
}

/// After a barrier that follows the last write of what the word tells of: the proxy may read it.
__device__ __forceinline__ void tell_proxy(NetworkWords::Word& word, std::uint64_t value) {
  __threadfence_system();
  store_word(&word.value, value);
}

/// Before a barrier that precedes the first use of the slots. The proxy itself has deadlines, and knows whom it waits
/// for: this ends when it has carried out so many, or the host has raised the abort word. False: that.
__device__ __forceinline__ bool await_proxy(const NetworkExchange& exchange, const NetworkWords::Word& word,
                                            std::uint64_t least, std::uint64_t& seen) {
  Patience patience;
  while (seen < least) {
    seen = acquire_word(&word.value);
    if (seen < least && patience.spent(exchange.ring, 0, 0, false, [] { return false; })) return false;
  }
  return true;
}

/// Likewise, until the call after so many may be described, for the last one described there has been carried out, and
/// slots are none of a message's.
__device__ __forceinline__ bool await_room(const NetworkExchange& exchange, std::uint64_t calls, std::uint64_t messages,
                                           std::uint64_t& seen) {
  const std::uint64_t described = calls < network_depth ? 0 : calls + 1 - network_depth;
  return await_proxy(exchange, exchange.words->calls_done, described < messages ? messages : described, seen);
}

/// By one thread: from where this launch goes on, unless one before it gave up.
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

/// By one thread of each block, at its end: the last one leaves what the next call goes on from. Once a block has given
/// up, that means nothing any more.
__device__ __forceinline__ void save(const NetworkExchange& exchange, const NetworkMemory& shared,
                                     const ProxyProgress& progress) {
  NetworkCounts& counts = *exchange.counts;
  const NetworkCall& call = exchange.call;
  if (shared.failed != 0) store_count(&counts.gave_up, 1);
  if (count_up(&counts.through) + 1 != gridDim.x) return;
  store_count(&counts.through, 0);
  if (acquire_count(&counts.gave_up) != 0) return;
  store_word(&counts.rounds_done, progress.rounds);
  store_word(&counts.calls_done, progress.calls);
  if (exchange.end_step < steps_of(call)) return;
  store_word(&counts.calls, shared.calls + 1);
  store_word(&counts.rounds, shared.rounds + call.rounds);
  if (call.is_awaited) store_word(&counts.calls_done, shared.calls + 1);
}

/// A template only so that a header may hold it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) network_exchange(const __grid_constant__ NetworkExchange exchange) {
  fetch_arguments(exchange);
  auto& shared = shared_memory<NetworkMemory>();
  const NetworkCall& call = exchange.call;
  // A fence takes its time: another thread does that than the one that waits.
  const bool waits = threadIdx.x == 0, tells = threadIdx.x == blockDim.x - 1;
  const std::uint32_t before = begin_launch(exchange.ring);
  ProxyProgress progress{};
  if (waits) progress = resume(exchange, shared);
  mark_start(exchange.ring, before);
  __syncthreads();
  const std::uint64_t first = shared.rounds;
  const bool describes = blockIdx.x == 0 && exchange.first_step == 0;
  const bool is_short = call.rounds == 1;  // all is told at once then, behind one fence
  if (describes && shared.failed == 0) describe(exchange);
  for (std::uint32_t step = exchange.first_step; step < exchange.end_step; ++step) {
    const bool fills = step < call.rounds, takes = step >= network_depth;
    if (!fills && !takes) continue;
    const std::uint64_t slots_end = first + step + 1;  // of all rounds; and the slot's last one is done before it
    const std::uint64_t least = slots_end < network_depth ? 0 : slots_end - network_depth;
    if (waits && shared.failed == 0 && !await_proxy(exchange, exchange.words->rounds_done, least, progress.rounds))
      shared.failed = 1;
    for (std::uint32_t i = threadIdx.x; i < call.flow_count; i += blockDim.x)
      shared.shares[i] = share_of(exchange, exchange.flows[i], first, step);
    const bool keeps = step == exchange.first_step, posts = describes && tells && step == 0;
    if (waits && keeps)
      shared.shares[call.flow_count] = share_of(exchange.kept_to, exchange.kept_from, exchange.kept_bytes);
    __syncthreads();
    if (shared.failed != 0) break;
    if (posts && !is_short) tell_proxy(exchange.words->posted, shared.calls + 1);
    copy_shares(shared.shares, call.flow_count);
    __syncthreads();
    // What came in the slot's last use has been taken by now: the proxy may write there.
    if (fills && tells) tell_proxy(exchange.words->pushed[blockIdx.x], slots_end);
    if (posts && is_short) store_word(&exchange.words->posted.value, shared.calls + 1);
    if (keeps) copy_shares(shared.shares + call.flow_count, 1);
  }
  if (waits) save(exchange, shared, progress);
  tell_finished(exchange.ring);
}

}  // namespace strait::kernels
