#pragma once

#include "kernels/lane.cuh"
#include "kernels/network.hpp"
#include "kernels/shifted.cuh"

/// The kernel of NetworkExchange (network.hpp). Step k of a block brings its share of round k into a slot, and takes
/// what came in that slot's last use, k - network_depth, to where it belongs: both at once, so that data goes both ways
/// between device and host.
namespace strait::kernels {

/// A block's share of a piece. bytes == 0: none.
struct NetworkShare {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes;
};
struct NetworkMemory {
  NetworkShare shares[max_flows];  ///< of this step, by flow
  std::uint64_t calls, rounds;     ///< before this call
  int failed;
};

/// What this block moves of a flow in that step of the call, the first of whose rounds is number `first` of all. Shares
/// follow one another, in whole granules but for the piece's end; the first blocks have one more.
__device__ __forceinline__ NetworkShare share_of(const NetworkExchange& exchange, const Flow& flow, std::uint64_t first,
                                                 std::uint32_t step) {
  constexpr auto granule = static_cast<std::uint32_t>(sizeof(Granule));
  const std::uint32_t behind = flow.sends ? 0 : network_depth;
  if (step < behind) return {nullptr, nullptr, 0};
  const Chunk piece = piece_of(flow, step - behind);
  const std::uint32_t granules = (piece.bytes + granule - 1) / granule, each = granules / gridDim.x,
                      more = granules % gridDim.x;
  const std::uint32_t begin = (each * blockIdx.x + (blockIdx.x < more ? blockIdx.x : more)) * granule;
  const std::uint32_t most = (each + (blockIdx.x < more ? 1 : 0)) * granule;
  const std::uint32_t left = begin < piece.bytes ? piece.bytes - begin : 0;
  // Of both ways: network_depth rounds before is the same slot.
  std::byte* const slot =
      exchange.slots + network_slot(first + step, flow.sends, exchange.slot_bytes) + slot_place(flow, piece) + begin;
  std::byte* const data = flow.data + piece.offset + begin;
  return {flow.sends ? slot : data, flow.sends ? data : slot, left < most ? left : most};
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
  copy_words(&exchange.words->call, &exchange.call, 1);
  copy_words(exchange.words->flows, exchange.flows, exchange.call.flow_count);
}

/// After a barrier that follows the last write of what the word tells of: the proxy may read it.
__device__ __forceinline__ void tell_proxy(NetworkWords::Word& word, std::uint64_t value) {
  __threadfence_system();
  store_word(&word.value, value);
}

/// Before a barrier that precedes the first use of the slots. The proxy itself has deadlines, and knows whom it waits
/// for: this ends when it has carried out so many rounds, or the host has raised the abort word. False: that.
__device__ __forceinline__ bool await_proxy(const NetworkExchange& exchange, std::uint64_t rounds) {
  Patience patience;
  while (acquire_word(&exchange.words->done.value) < rounds)
    if (patience.spent(exchange.ring, 0, 0, false, [] { return false; })) return false;
  return true;
}

/// By one thread: from where this launch goes on, unless one before it gave up.
__device__ __forceinline__ void resume(const NetworkExchange& exchange, NetworkMemory& shared) {
  shared.calls = load_word(&exchange.counts->calls);
  shared.rounds = load_word(&exchange.counts->rounds);
  shared.failed = acquire_count(&exchange.counts->gave_up) != 0 ? 1 : 0;
}

/// By one thread of each block, at its end: the last one leaves what the next call goes on from. Once a block has given
/// up, that means nothing any more.
__device__ __forceinline__ void save(const NetworkExchange& exchange, const NetworkMemory& shared) {
  NetworkCounts& counts = *exchange.counts;
  if (shared.failed != 0) store_count(&counts.gave_up, 1);
  if (count_up(&counts.through) + 1 != gridDim.x) return;
  store_count(&counts.through, 0);
  if (acquire_count(&counts.gave_up) != 0 || exchange.end_step < steps_of(exchange.call.rounds)) return;
  store_word(&counts.calls, shared.calls + 1);
  store_word(&counts.rounds, shared.rounds + exchange.call.rounds);
}

/// A template only so that a header may hold it.
template <class W = Bulk>
__global__ void __launch_bounds__(max_threads, 1) network_exchange(const __grid_constant__ NetworkExchange exchange) {
  fetch_arguments(exchange);
  auto& shared = shared_memory<NetworkMemory>();
  const NetworkCall& call = exchange.call;
  // A fence takes its time: another thread does that than the one that waits.
  const bool waits = threadIdx.x == 0, tells = threadIdx.x == blockDim.x - 1;
  const std::uint32_t before = begin_launch(exchange.ring);
  if (waits) resume(exchange, shared);
  mark_start(exchange.ring, before);
  __syncthreads();
  const std::uint64_t first = shared.rounds;
  if (blockIdx.x == 0 && exchange.first_step == 0 && shared.failed == 0) describe(exchange);
  for (std::uint32_t step = exchange.first_step; step < exchange.end_step; ++step) {
    const bool fills = step < call.rounds, takes = step >= network_depth;
    if (!fills && !takes) continue;
    if (waits && takes && !await_proxy(exchange, first + step - network_depth + 1)) shared.failed = 1;
    for (std::uint32_t i = threadIdx.x; i < call.flow_count; i += blockDim.x)
      shared.shares[i] = share_of(exchange, exchange.flows[i], first, step);
    __syncthreads();
    if (shared.failed != 0) break;
    if (step == 0 && tells && blockIdx.x == 0) tell_proxy(exchange.words->posted, shared.calls + 1);
    copy_shares(shared.shares, call.flow_count);
    __syncthreads();
    // What came in the slot's last use has been taken by now: the proxy may write there.
    if (fills && tells) tell_proxy(exchange.words->pushed[blockIdx.x], first + step + 1);
  }
  if (waits) save(exchange, shared);
  tell_finished(exchange.ring);
}

}  // namespace strait::kernels
