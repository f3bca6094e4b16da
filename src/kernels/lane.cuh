#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/protocol.cuh"

/// One thread block's end of a protocol (launch.hpp): its lanes of every ring, and what its warps do with chunks. `P`
/// is the protocol's policy (protocol.cuh).
namespace strait::kernels {

/// A chunk on its way to a peer in this round, and one that comes. Kept in shared memory, one for each peer by
/// position. `bytes` == 0: none. `slot_flag`: used by protocols that flag slots.
struct Outgoing {
  const std::byte* source;
  std::byte* slot;
  std::uint64_t* slot_flag;
  std::uint64_t flag;
  std::uint32_t bytes;
};
struct Incoming {
  const std::byte* slot;
  const std::uint64_t* slot_flag;
  std::byte* destination;
  std::uint64_t flag;
  std::uint32_t bytes;
  std::uint32_t peer;
};

/// This rank's part of what is reduced or copied, on one lane.
struct Own {
  const std::byte* input;
  std::byte* output;
  std::uint32_t bytes;
};

/// Where the reader of a lane returns its slots: in the writer's arena.
template <class P>
__device__ __forceinline__ std::uint64_t* returned_word(const Ring& ring, const LaneEnds& ends) {
  return reinterpret_cast<std::uint64_t*>(ring.arenas[ends.writer]) +
         lane_index(P::protocol, ends.cast, ends.reader, lane_number<P>(ends.lane));
}

/// LaneCounts::sent of a lane on which nothing goes on.
inline constexpr std::uint64_t gave_up = ~std::uint64_t{0};

/// One peer's lane of a ring, in the registers of the one thread that looks after it.
template <class P>
class Lane {
 public:
  /// Of the launch's arguments alone, so that it may come before after_predecessor().
  __device__ Lane(const Ring& ring, std::uint32_t peer, Cast cast, std::uint32_t lane = 0)
      : ring_(ring),
        peer_(peer),
        out_(ring, {ring.rank, peer, cast, lane}),
        in_(ring, {peer, ring.rank, cast, lane}),
        counts_(&ring.counts[lane_index(P::protocol, cast, peer, lane_number<P>(lane))]),
        returned_word_(returned_word<P>(ring, {ring.rank, peer, cast, lane})),
        peers_returned_word_(returned_word<P>(ring, {peer, ring.rank, cast, lane})) {}
  /// Goes on from where the last launch was. False: that one gave up, and so must this one: a peer would take what it
  /// sends for what the earlier one owes, or for a result, which it may have got from what that one left behind.
  /// `asks`: now what the peer has given back since; else ask_if_due() is for the launch to call.
  __device__ bool resume(bool asks = true) {
    const auto* const counts = reinterpret_cast<const std::byte*>(counts_);
    const Granule sent_and_taken = load_plain(counts), back = load_plain(counts + sizeof(Granule));
    const bool gave_up_elsewhere = ring_.gave_up != nullptr && *ring_.gave_up != 0;
    if (sent_and_taken.low == gave_up || gave_up_elsewhere) return false;
    // Of this GPU's own memory, beside the counts; from the host's it would take as long as a small call.
    returned_ = !asks || ring_.staged ? back.high : load_returned();
    sent_ = sent_and_taken.low;
    taken_ = sent_and_taken.high;
    given_back_ = back.low;
    give_back();
    return true;
  }
  /// Asks what the peer has given back if the next launch would have to, while there is something else to wait for.
  __device__ void ask_if_due() {
    if (!ring_.staged && sent_ + 1 >= returned_ + slot_depth) returned_ = load_returned();
  }
  /// What later launches start from.
  __device__ void save(bool gives_up) {
    *counts_ = {gives_up ? gave_up : sent_, taken_, given_back_, returned_};
    if (gives_up && ring_.gave_up != nullptr) *ring_.gave_up = 1;
  }

  /// Takes the next slot towards the peer, once it is free. `lane`: as when it was made, and not kept, because that
  /// would cost those who need it not. False: gave up.
  __device__ bool next_slot(const std::byte* source, std::uint32_t bytes, std::uint16_t call_hash, Outgoing& chunk,
                            std::uint32_t lane = 0) {
    chunk.bytes = 0;
    if (bytes == 0) return true;
    if (!claim_slot(call_hash, chunk, lane)) return false;
    chunk.source = source;
    chunk.bytes = bytes;
    return true;
  }
  /// Likewise, of a chunk whose source and length stand there.
  __device__ bool claim_slot(std::uint16_t call_hash, Outgoing& chunk, std::uint32_t lane = 0) {
    Patience patience;
    while (sent_ >= returned_ + slot_depth) {
      returned_ = load_returned();
      if (sent_ >= returned_ + slot_depth && patience.spent(ring_, peer_, lane_number<P>(lane), true)) return false;
    }
    chunk.slot = out_.slot(sent_);
    if constexpr (P::flags_slots) chunk.slot_flag = out_.flag(sent_);
    chunk.flag = P::flag(sent_, call_hash);
    if constexpr (P::protocol == Protocol::packets) is_stale_ = is_stale_ || P::wipes(sent_);
    ++sent_;
    return true;
  }
  /// The number of the next slot each way: where a message begins both ends have the same.
  __device__ std::uint64_t sent() const { return sent_; }
  __device__ std::uint64_t taken() const { return taken_; }
  /// Whether next_slot() need not wait.
  __device__ bool has_slot() {
    if (sent_ >= returned_ + slot_depth) returned_ = load_returned();
    return sent_ < returned_ + slot_depth;
  }
  /// Whether a slot that was taken since the last question must be wiped before it is filled.
  __device__ bool takes_stale_slots() {
    const bool is_stale = is_stale_;
    is_stale_ = false;
    return is_stale;
  }
  /// Names the slot that the peer's next chunk comes in.
  __device__ void expect(std::byte* destination, std::uint32_t bytes, std::uint16_t call_hash, Incoming& chunk) {
    chunk.bytes = bytes;
    if (bytes == 0) return;
    chunk.destination = destination;
    chunk.peer = peer_;
    expect_slot(call_hash, chunk);
  }
  /// Likewise, of a chunk whose destination, length and peer stand there.
  __device__ void expect_slot(std::uint16_t call_hash, Incoming& chunk) {
    chunk.slot = in_.slot(taken_);
    if constexpr (P::flags_slots) chunk.slot_flag = in_.flag(taken_);
    chunk.flag = P::flag(taken_, call_hash);
    ++taken_;
  }
  /// Whether what expect() would name is there, where slots are flagged.
  __device__ bool has_come(std::uint16_t call_hash) const {
    return acquire_word(in_.flag(taken_)) == P::flag(taken_, call_hash);
  }
  /// After a barrier that follows the last read of what was expected. That takes no fence: what a read has brought, no
  /// later write can change, and every thread has compared it or stored it elsewhere. What a launch took last, the next
  /// one gives back: a launch that ends with a store to a peer would end only when that has arrived.
  __device__ void give_back() {
    if (taken_ == given_back_) return;
    given_back_ = taken_;
    store_word(peers_returned_word_, taken_);
  }

 private:
  /// Plain stores into a slot must come after the reads for which it was returned.
  __device__ std::uint64_t load_returned() const {
    return P::flags_slots ? acquire_word(returned_word_) : load_word(returned_word_);
  }
  const Ring& ring_;
  const std::uint32_t peer_;
  const LaneSlots<P> out_, in_;
  LaneCounts* const counts_;
  std::uint64_t* const returned_word_;        ///< of this rank's slots, which the peer returns
  std::uint64_t* const peers_returned_word_;  ///< of the peer's, which this rank does
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t given_back_ = 0;
  bool is_stale_ = false;
};

/// By a thread that has given up, for all lanes of a ring that its block serves, after a barrier that follows save().
template <class P>
__device__ __forceinline__ void give_up_lanes(const Ring& ring, Cast cast) {
  for (std::uint32_t peer = 0; peer < ring.ranks; ++peer)
    if (peer != ring.rank) ring.counts[lane_index(P::protocol, cast, peer, lane_number<P>(blockIdx.x))].sent = gave_up;
  if (ring.gave_up != nullptr) *ring.gave_up = 1;
}

/// By all threads of the block, after a barrier that follows next_slot(): who multicasts must wait until all readers
/// have returned a slot.
template <class P>
__device__ __forceinline__ void wipe(const Ring& ring, const Outgoing* chunks, std::uint32_t count) {
  const std::uint32_t slot_bytes = ring.slots[static_cast<std::uint32_t>(P::protocol)].slot_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (chunks[i].bytes == 0) continue;
    for (std::uint32_t offset = threadIdx.x * sizeof(Granule); offset < slot_bytes;
         offset += blockDim.x * sizeof(Granule))
      store_granule(chunks[i].slot + offset, {0, 0});
  }
}

/// A barrier. Of packets, whether any thread of the block `takes_stale_slots`.
template <class P>
__device__ __forceinline__ bool meet(bool takes_stale_slots) {
  if constexpr (P::protocol == Protocol::packets) return __syncthreads_or(takes_stale_slots) != 0;
  __syncthreads();
  return false;
}

/// After a barrier that follows the last write into the slot, and a fence of this thread, which covers what the barrier
/// has shown it: the readers may read it.
__device__ __forceinline__ void publish(const Outgoing& chunk) {
  if (chunk.bytes != 0) store_word(chunk.slot_flag, chunk.flag);
}
/// What a thread tells of a chunk that its block has written: that it is there. A fence waits, under load, for all that
/// the SM is sending, so that other threads do it than those that look after the next round meanwhile: the last ones.
class Notice {
 public:
  /// Before the barrier that follows the last write into the slots: then the next round's chunks may stand there.
  __device__ Notice(const Outgoing* chunks, std::uint32_t count) {
    const std::uint32_t nth = blockDim.x - 1 - threadIdx.x;
    if (nth >= count || chunks[nth].bytes == 0) return;
    slot_flag_ = chunks[nth].slot_flag;
    flag_ = chunks[nth].flag;
  }
  __device__ bool is_due() const { return slot_flag_ != nullptr; }
  __device__ void post() const {
    if (is_due()) store_word(slot_flag_, flag_);
  }

 private:
  std::uint64_t* slot_flag_ = nullptr;
  std::uint64_t flag_ = 0;
};
/// After that barrier: the readers may read the slots.
template <class... Notices>
__device__ __forceinline__ void fence_and_publish(const Notices&... notices) {
  if (!(notices.is_due() || ...)) return;
  __threadfence_system();
  (notices.post(), ...);
}
/// Before a barrier that precedes the first read of the slot. False: gave up.
__device__ __forceinline__ bool await(const Ring& ring, const Incoming& chunk, std::uint32_t lane) {
  if (chunk.bytes == 0) return true;
  Patience patience;
  while (acquire_word(chunk.slot_flag) != chunk.flag)
    if (patience.spent(ring, chunk.peer, lane, false)) return false;
  return true;
}

/// The one thread that says what a launch begins: of a block's last warp, because the first one has lanes to look
/// after.
__device__ __forceinline__ bool is_marker() { return blockIdx.x == 0 && threadIdx.x == blockDim.x - 1; }

/// By all threads of a block: the launch before this one has ended. Collectives that had started then: for
/// mark_start(), which comes later, so that no thread waits for this load alone.
__device__ __forceinline__ std::uint32_t begin_launch(const Ring& ring) {
  after_predecessor();
  return is_marker() ? ring.launch_counts->collectives : 0;
}

/// That the call has started, as the collective of that number.
__device__ __forceinline__ void mark_call(std::uint64_t& place, std::uint32_t number, std::uint32_t call) {
  store_word(&place, std::uint64_t{number} << 32 | call);
}
/// That the launch has begun, as another one may do now (IslandMessages).
__device__ __forceinline__ void note_begun(const Ring& ring) {
  if (ring.finished != nullptr) add_count(&ring.launch_counts->begun, gridDim.x);
}

/// Notes that this launch has begun and, of a call's first one, marks that the call has started: by stores that nobody
/// waits for. (In host memory a mark would hold up the end of the launch.)
__device__ __forceinline__ void mark_start(const Ring& ring, std::uint32_t collectives_before) {
  if (!is_marker()) return;
  note_begun(ring);
  if (ring.call == 0) return;
  const std::uint32_t number = collectives_before + (ring.is_message ? 0 : 1);
  LaunchCounts& counts = *ring.launch_counts;
  mark_call(ring.is_message ? counts.started.messages : counts.started.calls[number % kept_marks], number, ring.call);
  store_count(&counts.collectives, number);
}

/// By all threads of a block, as the last of what they do, on every way out: a stream that waits for this launch would
/// wait for ever for a block that did not tell.
__device__ __forceinline__ void tell_finished(const Ring& ring) {
  if (ring.finished == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0) count_up_released(ring.finished);
}

/// The pieces of several chunks, dealt to the warps of a block in turn. A warp works on `batch` of them at a time: all
/// are loaded before the first is stored, because one access takes as long as many. Those before `begin` are done.
template <int batch, class Body>
__device__ __forceinline__ bool for_tasks(std::uint32_t tasks, Body&& body, std::uint32_t begin = 0) {
  const std::uint32_t warp = threadIdx.x / warp_threads, warps = blockDim.x / warp_threads;
  for (std::uint32_t first = begin + warp; first < tasks; first += batch * warps) {
    std::uint32_t numbers[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) numbers[b] = first + b * warps;
    if (!body(numbers)) return false;
  }
  return true;
}

/// By a whole warp: writes granules to their places in a slot, with flags where they belong.
template <class P>
__device__ __forceinline__ void send(const Outgoing& chunk, const Place& place, const Granule& value) {
  const Granule packed = P::packed(value, chunk.flag);
  if (place.active) store_granule(chunk.slot + place.slot_offset, packed);
}

inline constexpr int batch_size = 4;

/// A task among those of several chunks: which chunk, and this thread's place in which of its pieces.
struct Task {
  std::uint32_t chunk;
  Place place;
};
template <class P, class Chunk>
__device__ __forceinline__ Task task_of(std::uint32_t number, const Chunk* chunks, std::uint32_t count) {
  const std::uint32_t piece = number / count, chunk = number - piece * count;
  return {chunk, P::place_of(piece, chunks[chunk].bytes)};
}

/// Defines what is loaded only on a condition: else, as the compiler sees it, it is kept from the beginning of the
/// kernel on, and the loops over granules lack its registers.
template <class P, class T, int count>
__device__ __forceinline__ void clear(T (&values)[count]) {
  if constexpr (P::flags_slots) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = {};
  }
}

/// Sends all chunks: `count` of them, of at most `pieces` pieces each, but the first `begin` pieces of all.
/// `contribution(granule)` is what is sent of a granule of the user's.
template <class P, class Contribution>
__device__ __forceinline__ void push(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces,
                                     Contribution&& contribution, std::uint32_t begin = 0) {
  const std::uint32_t tasks = count * pieces;
  for_tasks<batch_size>(
      tasks,
      [&](const std::uint32_t(&numbers)[batch_size]) {
        Task batch[batch_size];
        Granule values[batch_size];
        clear<P>(batch);
        clear<P>(values);
#pragma unroll
        for (int b = 0; b < batch_size; ++b) {
          if (numbers[b] >= tasks) continue;
          batch[b] = task_of<P>(numbers[b], chunks, count);
          values[b] =
              UserBytes<P::stride>(chunks[batch[b].chunk].source).load(batch[b].place.offset, batch[b].place.valid);
        }
#pragma unroll
        for (int b = 0; b < batch_size; ++b)
          if (numbers[b] < tasks) send<P>(chunks[batch[b].chunk], batch[b].place, contribution(values[b]));
        return true;
      },
      begin);
}

}  // namespace strait::kernels
