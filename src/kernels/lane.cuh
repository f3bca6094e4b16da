#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/protocol.cuh"

/// One thread block's end of a protocol (launch.hpp): its lanes of every ring, and how its warps move chunks. `P` is
/// the policy of the protocol (protocol.cuh).
namespace strait::kernels {

/// A chunk that is sent to a peer in this round, and one that is received. They lie in shared memory, one for each
/// peer, indexed by position. `bytes` == 0: no chunk. `slot_flag` is used only by protocols that flag slots.
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

/// This rank's own part of a reduction or a copy, on one lane.
struct OwnPart {
  const std::byte* input;
  std::byte* output;
  std::uint32_t bytes;
};

/// Returns the counter through which the reader of a lane returns its slots. It lies in the writer's arena.
template <class P>
__device__ __forceinline__ std::uint64_t* returned_word(const Ring& ring, const LaneEnds& ends) {
  return reinterpret_cast<std::uint64_t*>(ring.arenas[ends.writer]) +
         lane_index(P::protocol, ends.cast, ends.reader, lane_number<P>(ends.lane));
}

/// Value of LaneCounts::sent for a lane on which a launch gave up, so that no later launch continues.
inline constexpr std::uint64_t gave_up = ~std::uint64_t{0};

/// The lane of a ring to and from one peer, in the registers of the one thread that manages it.
template <class P>
class Lane {
 public:
  /// Depends only on the launch's arguments, so it may run before after_predecessor().
  __device__ Lane(const Ring& ring, std::uint32_t peer, Cast cast, std::uint32_t lane = 0)
      : ring_(ring),
        peer_(peer),
        out_(ring, {ring.rank, peer, cast, lane}),
        in_(ring, {peer, ring.rank, cast, lane}),
        counts_(&ring.counts[lane_index(P::protocol, cast, peer, lane_number<P>(lane))]),
        returned_word_(returned_word<P>(ring, {ring.rank, peer, cast, lane})),
        peers_returned_word_(returned_word<P>(ring, {peer, ring.rank, cast, lane})) {}
  /// Continues from where the last launch ended. Returns false if an earlier launch gave up. Then this launch must give
  /// up, too: a peer could take what it sends for data that the earlier launch still owes, or for a result that was
  /// computed from what the earlier launch left behind. `asks`: reads now which slots the peer has returned; otherwise
  /// the caller must call ask_if_due().
  __device__ bool resume(bool asks = true) {
    const auto* const counts = reinterpret_cast<const std::byte*>(counts_);
    const Granule sent_and_taken = load_plain(counts), back = load_plain(counts + sizeof(Granule));
    const bool gave_up_elsewhere = ring_.gave_up != nullptr && *ring_.gave_up != 0;
    if (sent_and_taken.low == gave_up || gave_up_elsewhere) return false;
    // From this GPU's own memory, beside the counts. From host memory the read would take as long as a small call.
    returned_to_us_ = !asks || ring_.staged ? back.high : load_returned();
    sent_ = sent_and_taken.low;
    taken_ = sent_and_taken.high;
    returned_by_us_ = back.low;
    give_back();
    return true;
  }
  /// Reads which slots the peer has returned if the next launch would otherwise have to. To be called while the thread
  /// has something else to wait for.
  __device__ void ask_if_due() {
    if (!ring_.staged && sent_ + 1 >= returned_to_us_ + slot_depth) returned_to_us_ = load_returned();
  }
  /// Stores the counts with which later launches continue.
  __device__ void save(bool gives_up) {
    *counts_ = {gives_up ? gave_up : sent_, taken_, returned_by_us_, returned_to_us_};
    if (gives_up && ring_.gave_up != nullptr) *ring_.gave_up = 1;
  }

  /// Waits until the next slot to the peer is free and claims it for `chunk`. `lane` is the number that was given to
  /// the constructor; it is not kept, because it would cost registers even where it is not needed. Returns false if the
  /// thread gave up.
  __device__ bool next_slot(const std::byte* source, std::uint32_t bytes, std::uint16_t call_hash, Outgoing& chunk,
                            std::uint32_t lane = 0) {
    chunk.bytes = 0;
    if (bytes == 0) return true;
    if (!claim_slot(call_hash, chunk, lane)) return false;
    chunk.source = source;
    chunk.bytes = bytes;
    return true;
  }
  /// As next_slot(), for a chunk whose source and length are already set.
  __device__ bool claim_slot(std::uint16_t call_hash, Outgoing& chunk, std::uint32_t lane = 0) {
    PollMonitor monitor;
    while (sent_ >= returned_to_us_ + slot_depth) {
      returned_to_us_ = load_returned();
      if (sent_ >= returned_to_us_ + slot_depth && monitor.must_give_up(ring_, peer_, lane_number<P>(lane), true))
        return false;
    }
    chunk.slot = out_.slot(sent_);
    if constexpr (P::flags_slots) chunk.slot_flag = out_.flag(sent_);
    chunk.flag = P::flag(sent_, call_hash);
    if constexpr (P::protocol == Protocol::packets) is_stale_ = is_stale_ || P::wipes(sent_);
    ++sent_;
    return true;
  }
  /// Return the number of the next slot in each direction. At the beginning of a message both ends have the same
  /// number.
  __device__ std::uint64_t sent() const { return sent_; }
  __device__ std::uint64_t taken() const { return taken_; }
  /// Returns whether next_slot() would not wait.
  __device__ bool has_slot() {
    if (sent_ >= returned_to_us_ + slot_depth) returned_to_us_ = load_returned();
    return sent_ < returned_to_us_ + slot_depth;
  }
  /// Returns whether a slot that was claimed since the last call must be wiped before it is filled.
  __device__ bool takes_stale_slots() {
    const bool is_stale = is_stale_;
    is_stale_ = false;
    return is_stale;
  }
  /// Sets in `chunk` the slot in which the peer's next chunk arrives.
  __device__ void expect(std::byte* destination, std::uint32_t bytes, std::uint16_t call_hash, Incoming& chunk) {
    chunk.bytes = bytes;
    if (bytes == 0) return;
    chunk.destination = destination;
    chunk.peer = peer_;
    expect_slot(call_hash, chunk);
  }
  /// As expect(), for a chunk whose destination, length and peer are already set.
  __device__ void expect_slot(std::uint16_t call_hash, Incoming& chunk) {
    chunk.slot = in_.slot(taken_);
    if constexpr (P::flags_slots) chunk.slot_flag = in_.flag(taken_);
    chunk.flag = P::flag(taken_, call_hash);
    ++taken_;
  }
  /// Returns whether the chunk that expect() would name has arrived. Only for protocols that flag slots.
  __device__ bool has_come(std::uint16_t call_hash) const {
    return acquire_word(in_.flag(taken_)) == P::flag(taken_, call_hash);
  }
  /// Returns slots to the peer. To be called after a barrier that follows the last read of what was expected. No fence
  /// is needed: no later write can change what a read has returned, and every thread has compared it or stored it
  /// elsewhere. The slots that a launch has read last are returned by the next launch, because a launch whose last
  /// action is a store to a peer ends only when that store has arrived.
  __device__ void give_back() {
    if (taken_ == returned_by_us_) return;
    returned_by_us_ = taken_;
    store_word(peers_returned_word_, taken_);
  }

 private:
  /// An acquire load where stores into slots are plain: they must come after the reads for which the slot was returned.
  __device__ std::uint64_t load_returned() const {
    return P::flags_slots ? acquire_word(returned_word_) : load_word(returned_word_);
  }
  const Ring& ring_;
  const std::uint32_t peer_;
  const LaneSlots<P> out_, in_;
  LaneCounts* const counts_;
  std::uint64_t* const returned_word_;        ///< counter of this rank's slots, which the peer advances
  std::uint64_t* const peers_returned_word_;  ///< counter of the peer's slots, which this rank advances
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t returned_to_us_ = 0;
  std::uint64_t returned_by_us_ = 0;
  bool is_stale_ = false;
};

/// Marks all lanes of a ring that the block serves as given up. Called by a thread that has given up, after a barrier
/// that follows save().
template <class P>
__device__ __forceinline__ void give_up_lanes(const Ring& ring, Cast cast) {
  for (std::uint32_t peer = 0; peer < ring.ranks; ++peer)
    if (peer != ring.rank) ring.counts[lane_index(P::protocol, cast, peer, lane_number<P>(blockIdx.x))].sent = gave_up;
  if (ring.gave_up != nullptr) *ring.gave_up = 1;
}

/// Clears the slots of `chunks`. Called by all threads of the block, after a barrier that follows next_slot() for all
/// peers: a multicast slot may be written only when all readers have returned it.
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

/// A barrier of the block. With packets it returns whether `takes_stale_slots` holds for any thread.
template <class P>
__device__ __forceinline__ bool block_barrier(bool takes_stale_slots) {
  if constexpr (P::protocol == Protocol::packets) return __syncthreads_or(takes_stale_slots) != 0;
  __syncthreads();
  return false;
}

/// Allows the readers to read a slot. Called after a barrier that follows the last write into the slot, and after a
/// fence of this thread, which also covers the writes of other threads that the barrier has made visible.
__device__ __forceinline__ void publish(const Outgoing& chunk) {
  if (chunk.bytes != 0) store_word(chunk.slot_flag, chunk.flag);
}
/// The flag by which one thread announces a chunk that its block has written. Under load a fence waits for everything
/// that the SM is sending. Therefore the last threads of the block fence and announce, while the first ones prepare the
/// next round.
class Notice {
 public:
  /// To be made before the barrier that follows the last write into the slots: after it, `chunks` may already describe
  /// the next round.
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
/// Announces chunks, after the barrier that follows the last write into their slots: readers may then read these.
template <class... Notices>
__device__ __forceinline__ void fence_and_publish(const Notices&... notices) {
  if (!(notices.is_due() || ...)) return;
  __threadfence_system();
  (notices.post(), ...);
}
/// Waits until a chunk has arrived. To be called before a barrier that precedes the first read of the slot. Returns
/// false if the thread gave up.
__device__ __forceinline__ bool wait_for_chunk(const Ring& ring, const Incoming& chunk, std::uint32_t lane) {
  if (chunk.bytes == 0) return true;
  PollMonitor monitor;
  while (acquire_word(chunk.slot_flag) != chunk.flag)
    if (monitor.must_give_up(ring, chunk.peer, lane, false)) return false;
  return true;
}

/// Returns whether this is the one thread that records what a launch begins. It belongs to the last warp of its block,
/// because the first warp manages lanes.
__device__ __forceinline__ bool is_marker() { return blockIdx.x == 0 && threadIdx.x == blockDim.x - 1; }

/// Waits for the end of the previous launch. Called by all threads of a block. Returns, for mark_start(), the number of
/// collectives that had started by then. mark_start() comes later, so that no thread waits for this load alone.
__device__ __forceinline__ std::uint32_t begin_launch(const Ring& ring) {
  after_predecessor();
  return is_marker() ? ring.launch_counts->collectives : 0;
}

/// Records that a call has started, as the collective with this number.
__device__ __forceinline__ void mark_call(std::uint64_t& place, std::uint32_t number, std::uint32_t call) {
  store_word(&place, std::uint64_t{number} << 32 | call);
}
/// Records that the launch has begun. It adds atomically, because another launch may begin at the same time
/// (IslandMessages).
__device__ __forceinline__ void note_begun(const Ring& ring) {
  if (ring.finished != nullptr) add_count(&ring.launch_counts->begun, gridDim.x);
}

/// Records that this launch has begun, and, if it is a call's first launch, that the call has started. The stores are
/// to device memory, and nothing waits for them. (In host memory a mark would delay the end of the launch.)
__device__ __forceinline__ void mark_start(const Ring& ring, std::uint32_t collectives_before) {
  if (!is_marker()) return;
  note_begun(ring);
  if (ring.call == 0) return;
  const std::uint32_t number = collectives_before + (ring.is_message ? 0 : 1);
  LaunchCounts& counts = *ring.launch_counts;
  mark_call(ring.is_message ? counts.started.messages : counts.started.calls[number % kept_marks], number, ring.call);
  store_count(&counts.collectives, number);
}

/// Counts the end of this block. Called by all threads of a block as their last action, on every way out: if a block
/// did not count its end, a stream that waits for this launch would wait forever.
__device__ __forceinline__ void count_finished_block(const Ring& ring) {
  if (ring.finished == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0) count_up_released(ring.finished);
}

/// Deals the pieces of several chunks to the warps of a block in turn. A warp works on `batch` pieces at a time: all
/// are loaded before the first is stored, because many loads take no longer than one. Pieces before `begin` have been
/// done already.
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

/// Writes granules to their places in a slot, with flags where the protocol has them. Called by a whole warp.
template <class P>
__device__ __forceinline__ void send(const Outgoing& chunk, const Place& place, const Granule& value) {
  const Granule packed = P::packed(value, chunk.flag);
  if (place.active) store_granule(chunk.slot + place.slot_offset, packed);
}

inline constexpr int batch_size = 4;

/// A piece of one of several chunks: which chunk, and this thread's place in the piece.
struct Task {
  std::uint32_t chunk;
  Place place;
};
template <class P, class Chunk>
__device__ __forceinline__ Task task_of(std::uint32_t number, const Chunk* chunks, std::uint32_t count) {
  const std::uint32_t piece = number / count, chunk = number - piece * count;
  return {chunk, P::place_of(piece, chunks[chunk].bytes)};
}

/// Initializes values that are loaded only on a condition. Otherwise the compiler assumes that they must be kept from
/// the beginning of the kernel on, which takes registers from the loops over granules.
template <class P, class T, int count>
__device__ __forceinline__ void clear(T (&values)[count]) {
  if constexpr (P::flags_slots) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = {};
  }
}

/// Sends all chunks: `count` chunks of at most `pieces` pieces each, without the first `begin` pieces of all.
/// `contribution(granule)` returns what is sent for a granule of user memory.
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
