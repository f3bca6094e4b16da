#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/exchange_call.cuh"
#include "kernels/lane.cuh"
#include "kernels/prompt.hpp"
#include "kernels/receive.cuh"

/// Prompt kernels: those of an Exchange of one round by protocols whose data bears flags, where each warp carries a
/// piece of the block's chunks, to and from all ranks.
///
/// A small call takes as long as the instructions between the end of the launch before it and its first store, between
/// that and its first look for what comes, and behind that: a thread waits for each result about 6 cycles, and nothing
/// runs beside it. In run_exchange() one thread looks after each lane and tells the others. Here every thread counts
/// slots by itself. What the arguments decide comes before the end of the launch before, what later launches need while
/// data is on its way, and one barrier is left. The far end sees the same slots, flags and counters.
namespace strait::kernels {

inline constexpr std::uint32_t parts_at_once = 4;  ///< ranks whose granules a thread has in flight together

/// This thread's granule of what goes to a rank, and of what comes from it; of its own rank, of what it keeps.
struct PromptPart {
  std::byte* out = nullptr;       ///< in the first slot
  const std::byte* in = nullptr;  ///< likewise
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::uint32_t source_valid = 0, destination_valid = 0;  ///< bytes that exist
  std::uint16_t hash_to = 0, hash_from = 0;
  bool uses_slot = false;                             ///< the block sends something there
  bool fills_slot = false;                            ///< and does so now: what is for all, with the last of them
  bool comes = false;                                 ///< the block takes something from there
  bool sends = false, takes = false, is_own = false;  ///< this thread
  std::uint64_t sent = 0, taken = 0;                  ///< slots
  Granule value{};                                    ///< of the source; later what has come
};

/// The lane of a peer of this rank's, in the registers of the thread that saves its counts.
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
  /// Of a launch that goes on: what the launch before took.
  __device__ void give_back() {
    if (now_.high != back_.low) store_word(peers_returned_word_, now_.high);
    back_.low = now_.high;
  }
  /// Likewise, unless that was done, and asks what the peer has given back if the next launch would have to.
  __device__ void trade() {
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
  Granule now_{};   ///< sent and taken
  Granule back_{};  ///< given back and returned
};

/// By a whole warp: until there is a slot to each of some ranks that are sent something. False: gave up.
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
    Patience patience;
    while (!gives_up && sent >= load_word(word) + slot_depth) gives_up = patience.spent(ring, rank, blockIdx.x, true);
  }
  return !__any_sync(0xffffffffu, gives_up);
}

/// The parts of some ranks that follow one another.
template <class P, class Call>
class PromptParts {
 public:
  __device__ explicit PromptParts(const Call& call) : call_(call), ring_(call.ring) {}

  /// Of the arguments alone, so that it may come before after_predecessor().
  __device__ __forceinline__ void find(std::uint32_t first_rank) {
    first = first_rank;
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) find_part(first + i, parts[i]);
  }
  /// Likewise: has what load() reads brought near. And has where that lies worked out, which else would come later.
  __device__ __forceinline__ void prefetch() const {
    prefetch_far(lane_counts(first));
#pragma unroll
    for (const PromptPart& part : parts)
      if (part.source_valid != 0) prefetch_far(part.source);
  }
  /// The counts of the lanes, and what this rank sends and keeps.
  template <class Contribution>
  __device__ __forceinline__ void load(Contribution&& contribution) {
    Granule counts[parts_at_once];
    std::uint64_t returned[parts_at_once];
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i) {
      const LaneCounts* const lane = lane_counts(first) + i * max_lanes;
      counts[i] = load_plain(reinterpret_cast<const std::byte*>(lane));
      returned[i] = lane->returned;
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
      is_free_ &= !parts[i].uses_slot || counts[i].low < returned[i] + slot_depth;
      if constexpr (P::protocol == Protocol::packets) must_wipe_ |= parts[i].fills_slot && P::wipes(counts[i].low);
    }
  }
  /// Of a multicast, what goes to all with the last of them. False: gave up, or an earlier launch did, or not
  /// `goes_on`. `before_waiting()`, if there is no slot: what peers may wait for meanwhile.
  template <class BeforeWaiting>
  __device__ __forceinline__ bool send(bool goes_on, BeforeWaiting&& before_waiting) {
    goes_on = goes_on && goes_on_;
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
      if (P::protocol == Protocol::packets && !part.fills_slot) continue;  // to pack them takes the whole warp a while
      store_granule_if(part.sends, part.out + slot_offset(part.sent),
                       P::packed(part.value, P::flag(part.sent, part.hash_to)));
    }
    return true;
  }
  /// Until all has come, in the place of the values of other ranks. False: gave up. As kernels::receive(), but that
  /// what is loaded where nothing comes was loaded before: else sums of two ranks through host memory take longer.
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
    Patience patience;
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
      const bool gives_up = missing != none && patience.spent(ring_, missing, blockIdx.x, false);
      if (__any_sync(0xffffffffu, gives_up)) return false;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < parts_at_once; ++i)
      if (P::protocol == Protocol::packets ? parts[i].comes : !parts[i].is_own) parts[i].value = P::unpacked(come[i]);
    return true;
  }

  /// Of a copy, what has come, and what this rank keeps.
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
  std::uint32_t first = 0;  ///< rank

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
  /// By the whole block, which all of it must enter. False: some other warp gave up.
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

/// `take(parts)` and then, once what comes may overwrite what was sent, `keep(parts)`: of ranks that follow one
/// another, in their order.
template <class P, class Call, class Contribution, class Take, class Keep>
__device__ __forceinline__ void run_prompt(const Call& call, Contribution&& contribution, Take&& take, Keep&& keep) {
  fetch_arguments(arguments_of(call));
  const Ring& ring = call.ring;
  const bool minds_a_peer = threadIdx.x < ring.ranks && threadIdx.x != ring.rank;
  PromptLane<P> lane(call, minds_a_peer ? threadIdx.x : ring.rank);
  PromptParts<P, Call> parts(call);
  parts.find(0);
  parts.prefetch();
  const std::uint32_t before = begin_launch(ring);
  parts.load(contribution);
  lane.load();
  const auto give_back = [&] {
    if (minds_a_peer) lane.give_back();
  };
  bool goes_on = parts.send(true, give_back), gives_up = false;
  const auto meanwhile = [&] {
    if (minds_a_peer && goes_on) lane.trade();
    mark_start(call, before);
  };
  const auto receive = [&] {
    goes_on = goes_on && parts.receive();
    take(parts);
    // In place, what comes overwrites what was sent.
    gives_up = __syncthreads_or(!goes_on) != 0;
    if (!gives_up) keep(parts);
  };
  if (ring.ranks <= parts_at_once) {  // apart, so that nothing is kept for a next time
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
  if (minds_a_peer) lane.save(gives_up);
  if (gives_up && ring.gave_up != nullptr) *ring.gave_up = 1;
  tell_finished(ring);
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
