#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/exchange_call.cuh"
#include "kernels/lane.cuh"
#include "kernels/prompt.hpp"
#include "kernels/receive.cuh"

/// Prompt kernels carry an Exchange of one round over protocols that send flags with the data. Each warp carries one
/// piece of the block's chunks, to all ranks and from all of them.
///
/// A small call takes as long as the instructions between the end of the previous launch and its first store, from
/// there to its first poll, and after the last poll: a thread waits about 6 cycles for each result, and nothing else
/// runs meanwhile. In run_exchange() one thread manages each lane and tells the others. Here every thread counts slots
/// by itself. What depends only on the arguments is computed before the previous launch has ended, what only later
/// launches need is done while data is on its way, and only one barrier is left. The other end sees the same slots,
/// flags and counters.
namespace strait::kernels {

inline constexpr std::uint32_t parts_at_once = 4;  ///< ranks whose granules a thread loads at the same time

/// This thread's granule of the data that goes to a rank, and of the data that comes from it; for its own rank, of what
/// it keeps.
struct PromptPart {
  std::byte* out = nullptr;       ///< its address in the lane's first slot
  const std::byte* in = nullptr;  ///< its address in the first slot of the peer's lane
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::uint32_t source_valid = 0, destination_valid = 0;  ///< bytes that exist
  std::uint16_t hash_to = 0, hash_from = 0;
  bool uses_slot = false;  ///< whether the block sends something to this rank
  /// Whether the block fills the slot with this part. A multicast slot is filled once, with the part of the last peer.
  bool fills_slot = false;
  bool comes = false;  ///< whether the block receives something from this rank
  /// Whether this thread sends or receives something, and whether the rank is its own.
  bool sends = false, takes = false, is_own = false;
  std::uint64_t sent = 0, taken = 0;  ///< slots used so far
  Granule value{};                    ///< loaded from the source; later, what has arrived
};

/// The lane to and from a peer, in the registers of the thread that saves its counts.
template <class P>
class PromptLane {
 public:
  template <class Call>
  __device__ PromptLane(const Call& call, std::uint32_t peer)
      : counts_(&call.ring.counts[lane_index(P::protocol, call.cast, peer, lane_number<P>(0))]),
        returned_word_(returned_word<P>(call.ring, {call.ring.rank, peer, call.cast, 0})),
        peers_returned_word_(returned_word<P>(call.ring, {peer, call.ring.rank, call.cast, 0})) {
    const std::uint32_t lane = lane_of(call, blockIdx.x);
    sends_ = chunk_at(message_to(call, peer), lane, 0).bytes != 0;
    takes_ = chunk_at(message_from(call, peer), lane, 0).bytes != 0;
  }
  __device__ void load() {
    now_ = load_plain(reinterpret_cast<const std::byte*>(counts_));
    back_ = load_plain(reinterpret_cast<const std::byte*>(counts_) + sizeof(Granule));
  }
  /// Returns to the peer the slots that the previous launch has read. Only for launches that go on.
  __device__ void give_back() {
    if (now_.high != back_.low) store_word(peers_returned_word_, now_.high);
    back_.low = now_.high;
  }
  /// Does what give_back() does unless that was called, counts this launch's slots, and reads which slots the peer has
  /// returned if the next launch would have to.
  __device__ void account_slots() {
    give_back();
    now_.low += sends_ ? 1 : 0;
    now_.high += takes_ ? 1 : 0;
    if (now_.low + 1 >= back_.high + slot_depth) back_.high = load_word(returned_word_);
  }
  __device__ void save(bool gives_up) const {
    *counts_ = {gives_up ? gave_up : now_.low, now_.high, back_.low, back_.high};
  }

 private:
  LaneCounts* const counts_;
  std::uint64_t* const returned_word_;
  std::uint64_t* const peers_returned_word_;
  bool sends_, takes_;
  Granule now_{};   ///< LaneCounts::sent and taken
  Granule back_{};  ///< LaneCounts::returned_by_us and returned_to_us
};

/// Waits until there is a free slot to each of some ranks that are sent something, from `first` on. Called by a whole
/// warp. Returns false if it gave up.
template <class P, class Call>
__device__ __forceinline__ bool await_slots(const Call& call, std::uint32_t first) {
  const Ring& ring = call.ring;
  bool gives_up = false;
#pragma unroll 1
  for (std::uint32_t rank = first; rank < first + parts_at_once && rank < ring.ranks; ++rank) {
    const bool uses = chunk_at(message_to(call, rank), lane_of(call, blockIdx.x), 0).bytes != 0;
    if (rank == ring.rank || !uses) continue;
    const std::uint64_t sent = ring.counts[lane_index(P::protocol, call.cast, rank, lane_number<P>(0))].sent;
    const std::uint64_t* const word = returned_word<P>(ring, {ring.rank, rank, call.cast, 0});
    PollMonitor monitor;
    while (!gives_up && sent >= load_word(word) + slot_depth)
      gives_up = monitor.must_give_up(ring, rank, blockIdx.x, true);
  }
  return !__any_sync(0xffffffffu, gives_up);
}

/// The parts of some consecutive ranks.
template <class P, class Call>
class PromptParts {
 public:
  __device__ explicit PromptParts(const Call& call) : call_(call), ring_(call.ring) {}

  /// Depends only on the arguments, so it may run before after_predecessor().
  __device__ __forceinline__ void find(std::uint32_t first_rank) {
    first = first_rank;
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) find_part(first + i, parts[i]);
  }
  /// Prefetches what load() reads; it may run before after_predecessor(), too. This also makes the compiler compute the
  /// addresses here, and not later.
  __device__ __forceinline__ void prefetch() const {
    prefetch_far(lane_counts(first));
#pragma unroll
    for (const PromptPart& part : parts)
      if (part.source_valid != 0) prefetch_far(part.source);
  }
  /// Loads the counts of the lanes, and what this rank sends and keeps.
  template <class Contribution>
  __device__ __forceinline__ void load(Contribution&& contribution) {
    Granule counts[parts_at_once];
    std::uint64_t returned_to_us[parts_at_once];
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      const LaneCounts* const lane = lane_counts(first) + i * max_lanes;
      counts[i] = load_plain(reinterpret_cast<const std::byte*>(lane));
      returned_to_us[i] = lane->returned_to_us;
    }
    const bool gave_up_elsewhere = ring_.gave_up != nullptr && *ring_.gave_up != 0;
    load_values();
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) parts[i].value = contribution(parts[i].value);
    goes_on_ = !gave_up_elsewhere;
    is_free_ = true;
    must_wipe_ = false;
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      parts[i].sent = counts[i].low;
      parts[i].taken = counts[i].high;
      goes_on_ &= counts[i].low != gave_up;
      is_free_ &= !parts[i].uses_slot || counts[i].low < returned_to_us[i] + slot_depth;
      if constexpr (P::protocol == Protocol::packets) must_wipe_ |= parts[i].fills_slot && P::wipes(counts[i].low);
    }
  }
  /// Sends this thread's granules. A multicast is sent with the part of the last peer. Returns false if it gave up, if
  /// an earlier launch did, or if `goes_on` is false. `before_waiting()` is called if a slot is not free: it does what
  /// peers may be waiting for meanwhile.
  template <class BeforeWaiting>
  __device__ __forceinline__ bool send(bool goes_on, BeforeWaiting&& before_waiting) {
    goes_on = goes_on && goes_on_;
    // Another block of this launch may give up while the threads of a warp look whether any has.
    if (ring_.gave_up != nullptr) goes_on = !__any_sync(0xffffffffu, !goes_on);
    if (goes_on && !is_free_) {
      before_waiting();
      goes_on = await_slots<P>(call_, first);
    }
    if constexpr (P::protocol == Protocol::packets)
      if (must_wipe_) goes_on = wipe_slots(goes_on);
    if (!goes_on) return false;
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      const PromptPart& part = parts[i];
      if (P::protocol == Protocol::packets && !part.fills_slot) continue;  // packing takes the whole warp some time
      store_granule_if(part.sends, part.out + slot_offset(part.sent),
                       P::packed(part.value, P::flag(part.sent, part.hash_to)));
    }
    return true;
  }
  /// Waits until everything has arrived, which replaces the values of the other ranks' parts. Returns false if it gave
  /// up. As kernels::receive(), except that where nothing arrives, it loads what load() has loaded before: otherwise
  /// sums of two ranks through host memory take longer.
  __device__ __forceinline__ bool receive() {
    constexpr std::uint32_t none = max_ranks;
    const auto* const nothing = reinterpret_cast<const std::byte*>(lane_counts(ring_.rank));
    const std::byte* slots[parts_at_once];
    std::uint64_t flags[parts_at_once];
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      slots[i] = parts[i].takes ? parts[i].in + slot_offset(parts[i].taken) : nothing;
      flags[i] = P::flag(parts[i].taken, parts[i].hash_from);
    }
    PollMonitor monitor;
    Granule come[parts_at_once];
    for (;;) {
#pragma unroll
      for (std::uint32_t i = 0; i < parts_at_once; ++i) come[i] = load_granule(slots[i]);
      const std::uint64_t zero = zero_once_loaded(ring_, come);
      std::uint32_t missing = none;
#pragma unroll
      for (std::uint32_t i = 0; i < parts_at_once; ++i)
        if (parts[i].takes && !P::has_come(come[i], flags[i] ^ zero)) missing = first + i;
      if (!__any_sync(0xffffffffu, missing != none)) break;
      const bool gives_up = missing != none && monitor.must_give_up(ring_, missing, blockIdx.x, false);
      if (__any_sync(0xffffffffu, gives_up)) return false;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i)
      if (P::protocol == Protocol::packets ? parts[i].comes : !parts[i].is_own) parts[i].value = P::unpacked(come[i]);
    return true;
  }

  /// Stores, for a copy, what has arrived and what this rank keeps.
  __device__ __forceinline__ void store_values() const {
    bool are_whole = true;
    std::uint32_t stored[parts_at_once];
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      const bool stays = parts[i].is_own && parts[i].source == parts[i].destination;
      stored[i] = stays ? 0 : parts[i].destination_valid;
      are_whole &= UserBytes<8>(parts[i].destination).is_whole(stored[i]);
    }
#pragma unroll
    for (std::uint32_t i = 0; are_whole && i < parts_at_once; ++i)
      UserBytes<8>(parts[i].destination).store_whole(stored[i], parts[i].value);
#pragma unroll
    for (std::uint32_t i = 0; !are_whole && i < parts_at_once; ++i)
      UserBytes<8>(parts[i].destination).store(0, stored[i], parts[i].value);
  }

  PromptPart parts[parts_at_once];
  std::uint32_t first = 0;  ///< first rank

 private:
  __device__ __forceinline__ void find_part(std::uint32_t rank, PromptPart& part) const {
    const bool exists = rank < ring_.ranks;
    const Message send = message_to(call_, rank), receive = message_from(call_, rank);
    const std::uint32_t lane = lane_of(call_, blockIdx.x), piece = threadIdx.x / warp_threads;
    const Chunk sent = chunk_at(send, lane, 0), taken = chunk_at(receive, lane, 0);
    const Place from = P::place_of(piece, exists ? sent.bytes : 0), to = P::place_of(piece, exists ? taken.bytes : 0);
    part.source = send.data + sent.offset + from.offset;
    part.destination = receive.data + taken.offset + to.offset;
    part.source_valid = from.valid;
    part.destination_valid = to.valid;
    part.hash_to = send.call_hash;
    part.hash_from = receive.call_hash;
    part.is_own = rank == ring_.rank;
    part.uses_slot = exists && !part.is_own && sent.bytes != 0;
    part.fills_slot = part.uses_slot && (call_.cast == Cast::single || rank == last_peer());
    part.sends = from.active && part.fills_slot;
    part.comes = exists && !part.is_own && taken.bytes != 0;
    part.takes = to.active && !part.is_own;
    if (!exists || part.is_own) return;
    part.out = LaneSlots<P>(ring_, {ring_.rank, rank, call_.cast, 0}).slots + from.slot_offset;
    part.in = LaneSlots<P>(ring_, {rank, ring_.rank, call_.cast, 0}).slots + to.slot_offset;
  }
  __device__ const LaneCounts* lane_counts(std::uint32_t rank) const {
    return &ring_.counts[lane_index(P::protocol, call_.cast, rank, lane_number<P>(0))];
  }
  __device__ std::uint32_t last_peer() const { return ring_.ranks - (ring_.rank + 1 == ring_.ranks ? 2 : 1); }
  __device__ __forceinline__ std::uint32_t slot_offset(std::uint64_t use) const {
    return static_cast<std::uint32_t>(use & (slot_depth - 1)) *
           ring_.slots[static_cast<std::uint32_t>(P::protocol)].slot_bytes;
  }
  __device__ __forceinline__ void load_values() {
    bool are_whole = true;
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i)
      are_whole &= UserBytes<8>(parts[i].source).is_whole(parts[i].source_valid);
#pragma unroll
    for (std::uint32_t i = 0; are_whole && i < parts_at_once; ++i)
      parts[i].value = UserBytes<8>(parts[i].source).load_whole(parts[i].source_valid);
#pragma unroll
    for (std::uint32_t i = 0; !are_whole && i < parts_at_once; ++i)
      parts[i].value = UserBytes<8>(parts[i].source).load(0, parts[i].source_valid);
  }
  /// Wipes stale slots. All threads of the block must call this. Returns false if any of them gave up.
  __device__ bool wipe_slots(bool goes_on) const {
    if (__syncthreads_or(!goes_on) != 0) return false;
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      if (!parts[i].fills_slot || !P::wipes(parts[i].sent)) continue;
      const LaneSlots<P> slots(ring_, {ring_.rank, first + i, call_.cast, 0});
      for (std::uint32_t offset = threadIdx.x * sizeof(Granule); offset < slots.slot_bytes;
           offset += blockDim.x * sizeof(Granule))
        store_granule(slots.slot(parts[i].sent) + offset, {0, 0});
    }
    __syncthreads();
    return true;
  }

  const Call& call_;
  const Ring& ring_;
  bool goes_on_ = true, is_free_ = true, must_wipe_ = false;
};

/// Carries out an exchange. For each group of consecutive ranks, in their order, calls `take(parts)`, and then, once
/// received data may overwrite what was sent, `keep(parts)`.
template <class P, class Call, class Contribution, class Take, class Keep>
__device__ __forceinline__ void run_prompt(const Call& call, Contribution&& contribution, Take&& take, Keep&& keep) {
  fetch_arguments(arguments_of(call));
  const Ring& ring = call.ring;
  const bool manages_a_peer = threadIdx.x < ring.ranks && threadIdx.x != ring.rank;
  PromptLane<P> lane(call, manages_a_peer ? threadIdx.x : ring.rank);
  PromptParts<P, Call> parts(call);
  parts.find(0);
  parts.prefetch();
  const std::uint32_t before = begin_launch(ring);
  parts.load(contribution);
  lane.load();
  const auto give_back = [&] {
    if (manages_a_peer) lane.give_back();
  };
  bool goes_on = parts.send(true, give_back), gives_up = false;
  const auto meanwhile = [&] {
    if (manages_a_peer && goes_on) lane.account_slots();
    mark_start(call, before);
  };
  const auto receive = [&] {
    goes_on = goes_on && parts.receive();
    take(parts);
    // In place, received data overwrites what was sent.
    gives_up = __syncthreads_or(!goes_on) != 0;
    if (!gives_up) keep(parts);
  };
  if (ring.ranks <= parts_at_once) {  // a separate path, so that no registers are kept for a next group
    meanwhile();
    receive();
  } else {
    const std::uint32_t groups = (ring.ranks + parts_at_once - 1) / parts_at_once;
#pragma unroll 1
    for (std::uint32_t step = 1; step < 2 * groups && !gives_up; ++step) {
      parts.find((step < groups ? step : step - groups) * parts_at_once);
      parts.load(contribution);
      if (step < groups) goes_on = parts.send(goes_on, give_back);
      if (step + 1 == groups) meanwhile();
      if (step >= groups) receive();
    }
  }
  if (manages_a_peer) lane.save(gives_up);
  if (gives_up && ring.gave_up != nullptr) *ring.gave_up = 1;
  count_finished_block(ring);
}

template <class P>
__global__ void __launch_bounds__(max_prompt_threads, 1)
    prompt_exchange_copy(const __grid_constant__ Exchange exchange) {
  const auto as_it_is = [](const Granule& value) { return value; };
  const auto take_nothing = [](const auto& /*parts*/) {};
  run_prompt<P>(exchange, as_it_is, take_nothing, [](const auto& all) { all.store_values(); });
}

template <class P, KernelType kind, bool sum_only>
__global__ void __launch_bounds__(max_prompt_threads, 1)
    prompt_exchange_reduce(const __grid_constant__ Exchange exchange) {
  const Ring& ring = exchange.ring;
  const Operation operation{exchange.op, exchange.type, ring.averaged, exchange.premul_scalar};
  const auto contribute = [&](const Granule& value) { return contribution<type_of(kind), sum_only>(value, operation); };
  using Sum = Reduction<type_of(kind), sum_only, Granule>;
  Sum sum;
  Granule result{};
  const Message& receive = exchange.receive[ring.rank];
  const Chunk own = chunk_at(receive, blockIdx.x, 0);
  const Place place = P::place_of(threadIdx.x / warp_threads, own.bytes);
  const UserBytes<8> output(receive.data + own.offset + place.offset);
  const bool is_whole = output.is_whole(place.valid);
  const auto take = [&](const auto& all) {
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      const bool contributes = all.first + i < ring.ranks;
      Granule value = all.parts[i].value;
      if constexpr (sum_only) {
        if (!contributes) value = Sum::neutral();
      } else if (!contributes) {
        break;
      }
      if (all.first + i == 0)
        sum.first(value, operation);
      else
        sum.next(value, operation);
    }
    if (all.first + parts_at_once >= ring.ranks) result = sum.result(operation);
  };
  run_prompt<P>(exchange, contribute, take, [&](const auto& all) {
    if (all.first + parts_at_once < ring.ranks) return;
    if (is_whole)
      output.store_whole(place.valid, result);
    else
      output.store(0, place.valid, result);
  });
}

}  // namespace strait::kernels
