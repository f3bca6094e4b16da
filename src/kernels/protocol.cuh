#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"
#include "kernels/primitives.cuh"
#include "kernels/user_bytes.cuh"

/// How bytes are arranged in a slot, and how a reader learns that they have arrived: one policy for each Protocol
/// (launch.hpp).
namespace strait::kernels {

inline constexpr std::uint32_t granules_per_line = line_bytes / sizeof(Granule);
inline constexpr std::uint32_t warp_threads = 32;

/// Decides how long a thread continues to poll. It looks at the mailbox (over PCIe) and at the clock only once in
/// polls_between_looks polls.
class PollMonitor {
 public:
  /// Called after each unsuccessful poll; returns whether to give up. `sends`: the thread waits for the peer to return
  /// a slot.
  __device__ bool must_give_up(const Ring& ring, std::uint32_t peer, std::uint32_t lane, bool sends) {
    return must_give_up(ring, peer, lane, sends, [] { return true; });
  }
  /// `is_for_peer()`, called now and then, returns whether the wait is due to the peer. Only then does the wait count
  /// towards the deadline, and only then is it reported as a wait for this peer.
  template <class IsForPeer>
  __device__ bool must_give_up(const Ring& ring, std::uint32_t peer, std::uint32_t lane, bool sends,
                               IsForPeer&& is_for_peer) {
    if (++polls_ % polls_between_looks != 0) return false;
    Mailbox& mailbox = *ring.mailbox;
    if (*static_cast<volatile std::uint32_t*>(&mailbox.abort) != 0)
      return tell(mailbox, Mailbox::Event::aborted, ring.members[peer], lane, sends);
    const bool is_peer_late = is_for_peer();
    if (polls_ / polls_between_looks % looks_between_notes == 1)
      note_wait(ring, is_peer_late ? ring.members[peer] + 1 : ~std::uint32_t{0});
    if (!is_peer_late) return false;
    const std::uint64_t now_ns = device_now_ns();
    if (began_ns_ == 0) began_ns_ = now_ns;
    if (ring.timeout_ns != 0 && now_ns - began_ns_ > ring.timeout_ns)
      return tell(mailbox, Mailbox::Event::timeout, ring.members[peer], lane, sends);
    if (now_ns - began_ns_ > ring.slow_ns * (told_ + 1)) {
      ++told_;  // reported repeatedly, because the peer may leave in between
      tell(mailbox, Mailbox::Event::slow, ring.members[peer], lane, sends);
    }
    return false;
  }

 private:
  /// Tells the host that this kernel waits, and gives it the marks of started calls. If the host copied the marks
  /// itself, the copy might have to wait in a hardware queue behind this launch.
  static __device__ __forceinline__ void note_wait(const Ring& ring, std::uint32_t waits) {
    if (ring.launch_counts == nullptr) return;
    Mailbox& mailbox = *ring.mailbox;
    if (blockIdx.x == 0) {
      StartedMarks& started = ring.launch_counts->started;
#pragma unroll 1
      for (std::uint32_t i = 0; i < kept_marks; ++i)
        store_word(&mailbox.started.calls[i], load_word(&started.calls[i]));
      store_word(&mailbox.started.messages, load_word(&started.messages));
      __threadfence_system();
    }
    *static_cast<volatile std::uint32_t*>(&mailbox.waits) = waits;
  }
  static __device__ bool tell(Mailbox& mailbox, Mailbox::Event event, std::uint32_t peer, std::uint32_t lane,
                              bool sends) {
    *static_cast<volatile std::uint32_t*>(&mailbox.peer) = peer;
    *static_cast<volatile std::uint32_t*>(&mailbox.lane) = lane;
    *static_cast<volatile std::uint32_t*>(&mailbox.sends) = sends ? 1 : 0;
    if (event == Mailbox::Event::timeout) {
      *static_cast<volatile std::uint32_t*>(&mailbox.timed_out) = 1;
      *static_cast<volatile std::uint32_t*>(&mailbox.holds_copies) = 1;
    }
    if (event == Mailbox::Event::aborted) *static_cast<volatile std::uint32_t*>(&mailbox.aborted) = 1;
    __threadfence_system();
    *static_cast<volatile Mailbox::Event*>(&mailbox.event) = event;
    return true;
  }

  /// Looks at the mailbox and the clock between two reports that this thread waits.
  static constexpr std::uint32_t looks_between_notes = 16;

  std::uint32_t polls_ = 0;
  std::uint64_t began_ns_ = 0;
  std::uint64_t told_ = 0;
};

/// The part of a piece of a chunk that this thread handles: one granule.
struct Place {
  std::uint32_t offset;       ///< offset of its data in the chunk, in bytes
  std::uint32_t slot_offset;  ///< offset in the slot, in bytes
  std::uint32_t valid;        ///< bytes of its data that exist
  bool active;                ///< whether the granule is written and read at all
};
__device__ __forceinline__ std::uint32_t valid_bytes(std::uint32_t offset, std::uint32_t chunk_bytes,
                                                     std::uint32_t most) {
  const std::uint32_t left = offset < chunk_bytes ? chunk_bytes - offset : 0;
  return left < most ? left : most;
}

/// Returns a peer's position, that is, its place in the order in which a rank serves its peers: k - 1 for the rank that
/// is k places after it. So no link is used by all ranks at the same time.
__device__ __forceinline__ std::uint32_t position_of(std::uint32_t peer, std::uint32_t rank, std::uint32_t ranks) {
  return peer > rank ? peer - rank - 1 : peer + ranks - rank - 1;
}

/// The ends of a lane: who writes, who reads, by which kind of ring, and which of the block's lanes it is (see
/// lane_number()).
struct LaneEnds {
  std::uint32_t writer;
  std::uint32_t reader;
  Cast cast;
  std::uint32_t lane;
};

/// Returns the number of a lane. If slots have no flags of their own, a block serves only the lane with its own number,
/// and LaneEnds::lane is unused. The number is then read where it is needed, because every instruction adds to the time
/// of small messages.
template <class P>
__device__ __forceinline__ std::uint32_t lane_number(std::uint32_t lane) {
  if constexpr (P::flags_slots) return lane;
  return blockIdx.x;
}

/// Returns the index of the first slot of a lane among all slots of its protocol in the arena. The slot_depth slots of
/// a lane are contiguous.
template <class P>
__device__ __forceinline__ std::size_t first_slot(const Ring& ring, const LaneEnds& ends) {
  const std::uint32_t k = !ring.staged               ? position_of(ends.writer, ends.reader, ring.ranks)
                          : ends.cast == Cast::multi ? ring.ranks - 1
                                                     : position_of(ends.reader, ends.writer, ring.ranks);
  return std::size_t{k * ring.slots[static_cast<std::uint32_t>(P::protocol)].lanes + lane_number<P>(ends.lane)} *
         slot_depth;
}

/// Addresses of a lane's slots, and, for bulk, of their flags.
template <class P>
struct LaneSlots {
  __device__ LaneSlots(const Ring& ring, const LaneEnds& ends)
      : slot_bytes(ring.slots[static_cast<std::uint32_t>(P::protocol)].slot_bytes) {
    std::byte* const arena = ring.arenas[ring.staged ? ends.writer : ends.reader];
    const std::size_t first = first_slot<P>(ring, ends);
    slots = arena + ring.slots[static_cast<std::uint32_t>(P::protocol)].offset_bytes + first * slot_bytes;
    flags = reinterpret_cast<std::uint64_t*>(arena + flags_offset_bytes) + first;
  }
  __device__ __forceinline__ std::byte* slot(std::uint64_t use) const {
    return slots + (use & (slot_depth - 1)) * slot_bytes;
  }
  __device__ __forceinline__ std::uint64_t* flag(std::uint64_t use) const { return flags + (use & (slot_depth - 1)); }

  std::byte* slots;
  std::uint64_t* flags;
  std::uint32_t slot_bytes;
};

struct Lines {
  static constexpr Protocol protocol = Protocol::lines;
  static constexpr std::uint32_t stride = 8;  ///< alignment of granules in user memory (see UserBytes)
  static constexpr int reduce_batch = 1;      ///< granules that a thread reduces at a time
  static constexpr bool flags_slots = false;

  static __device__ __forceinline__ bool bears_flag() {
    return threadIdx.x % granules_per_line == granules_per_line - 1;
  }
  static __device__ __forceinline__ Place place_of(std::uint32_t piece, std::uint32_t chunk_bytes) {
    const std::uint32_t thread = threadIdx.x % warp_threads;
    const std::uint32_t line = piece * piece_data_bytes(protocol) + thread / granules_per_line * line_data_bytes;
    const std::uint32_t offset = line + thread % granules_per_line * static_cast<std::uint32_t>(sizeof(Granule));
    return {offset, piece * piece_bytes + thread * static_cast<std::uint32_t>(sizeof(Granule)),
            valid_bytes(offset, chunk_bytes, bears_flag() ? 8 : 16), line < chunk_bytes};
  }
  static __device__ __forceinline__ Granule packed(Granule value, std::uint64_t flag) {
    if (bears_flag()) value.high = flag;
    return value;
  }
  static __device__ __forceinline__ bool has_come(const Granule& stored, std::uint64_t flag) {
    return !bears_flag() || stored.high == flag;
  }
  static __device__ __forceinline__ Granule unpacked(const Granule& stored) { return stored; }
  static __device__ __forceinline__ std::uint64_t flag(std::uint64_t use, std::uint16_t call_hash) {
    return slot_flag(use, call_hash);
  }
};

/// In packets, the first three of four neighbouring threads hold one granule of user data each. Beside its flag a
/// packet has room for three quarters of a granule; the fourth thread carries the remaining quarters of all three.
struct Packets {
  static constexpr Protocol protocol = Protocol::packets;
  static constexpr std::uint32_t stride = 16;
  static constexpr int reduce_batch = 1;
  static constexpr bool flags_slots = false;
  /// Bits of a flag that hold the use. Uses that are 2^use_bits apart look the same. The other bits identify the call.
  static constexpr std::uint32_t use_bits = 16;

  static __device__ __forceinline__ Place place_of(std::uint32_t piece, std::uint32_t chunk_bytes) {
    constexpr auto granule = static_cast<std::uint32_t>(sizeof(Granule));
    const std::uint32_t thread = threadIdx.x % warp_threads;
    const std::uint32_t first = piece * piece_data_bytes(protocol) + thread / 4 * 3 * granule;  // of these four threads
    const std::uint32_t offset = first + (carries_rests() ? 0 : thread % 4 * granule);
    return {offset, piece * piece_bytes + thread * granule,
            carries_rests() ? 0 : valid_bytes(offset, chunk_bytes, granule), first < chunk_bytes};
  }
  static __device__ __forceinline__ bool carries_rests() { return threadIdx.x % 4 == 3; }
  /// Called by a whole warp.
  static __device__ __forceinline__ Granule packed(const Granule& value, std::uint64_t flag) {
    const auto rest = static_cast<std::uint32_t>(value.high >> 32);
    const std::uint64_t of_first = of_thread(3, rest), of_second = of_thread(2, rest), of_third = of_thread(1, rest);
    const std::uint64_t low = carries_rests() ? of_first | of_second << 32 : value.low;
    return {low, (carries_rests() ? of_third : value.high & 0xffffffffu) | flag << 32};
  }
  static __device__ __forceinline__ bool has_come(const Granule& stored, std::uint64_t flag) {
    return stored.high >> 32 == flag;
  }
  /// Called by a whole warp.
  static __device__ __forceinline__ Granule unpacked(const Granule& stored) {
    const std::uint32_t thread = threadIdx.x % 4, of_first = of_thread(3, static_cast<std::uint32_t>(stored.low)),
                        of_second = of_thread(2, static_cast<std::uint32_t>(stored.low >> 32)),
                        of_third = of_thread(1, static_cast<std::uint32_t>(stored.high));
    const std::uint64_t rest = thread == 0 ? of_first : thread == 1 ? of_second : of_third;
    return {stored.low, (stored.high & 0xffffffffu) | rest << 32};
  }
  static __device__ __forceinline__ std::uint64_t flag(std::uint64_t use, std::uint16_t call_hash) {
    return ((use + 1) << (32 - use_bits) | call_hash | 1) & 0xffffffffu;  // never zero
  }
  /// Returns whether a slot must be wiped before this use, so that it holds nothing so old that its flag could be taken
  /// for a current one. (The far end of a slot may not have been written for a long time.)
  static __device__ __forceinline__ bool wipes(std::uint64_t use) {
    constexpr std::uint64_t period = std::uint64_t{1} << (use_bits - 2);
    return use >= period && use % period < slot_depth;
  }

 private:
  /// Returns the value of the thread whose number differs in the bits `difference`, which are among the last two.
  static __device__ __forceinline__ std::uint32_t of_thread(int difference, std::uint32_t value) {
    return __shfl_xor_sync(0xffffffffu, value, difference);
  }
};

struct Bulk {
  static constexpr Protocol protocol = Protocol::bulk;
  static constexpr std::uint32_t stride = 16;
  static constexpr int reduce_batch = 2;
  static constexpr bool flags_slots = true;

  static __device__ __forceinline__ Place place_of(std::uint32_t piece, std::uint32_t chunk_bytes) {
    const std::uint32_t slot_offset = piece * piece_bytes + threadIdx.x % warp_threads * 16;
    return {slot_offset, slot_offset, valid_bytes(slot_offset, chunk_bytes, 16), slot_offset < chunk_bytes};
  }
  static __device__ __forceinline__ Granule packed(const Granule& value, std::uint64_t /*flag*/) { return value; }
  static __device__ __forceinline__ bool has_come(const Granule& /*stored*/, std::uint64_t /*flag*/) { return true; }
  static __device__ __forceinline__ Granule unpacked(const Granule& stored) { return stored; }
  static __device__ __forceinline__ std::uint64_t flag(std::uint64_t use, std::uint16_t call_hash) {
    return Lines::flag(use, call_hash);
  }
};

}  // namespace strait::kernels
