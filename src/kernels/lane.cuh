#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"

/// One thread block's end of the line protocol (launch.hpp): its lane of every pair of ranks.
namespace strait::kernels {

/// What a thread moves at a time: 16 bytes of a line. The last of a line's eight threads has data in `low` only, and
/// the flag beside it.
struct Granule {
  std::uint64_t low;
  std::uint64_t high;
};
inline constexpr std::uint32_t granules_per_line = line_bytes / sizeof(Granule);
inline constexpr std::uint32_t warp_threads = 32;

__device__ __forceinline__ Granule load_line_granule(const std::byte* from) {
  Granule g;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(g.low), "=l"(g.high) : "l"(from) : "memory");
  return g;
}
__device__ __forceinline__ void store_line_granule(std::byte* to, const Granule& g) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(g.low), "l"(g.high) : "memory");
}
__device__ __forceinline__ std::uint64_t load_word(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_word(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/// How long a thread goes on polling. Looks at the mailbox (over PCIe) and the clock only now and then.
class Patience {
 public:
  /// Whether to give up.
  __device__ bool spent(const Ring& ring, std::uint32_t peer, std::uint32_t lane, bool sends) {
    if (++polls_ % polls_between_looks != 0) return false;
    Mailbox& mailbox = *ring.mailbox;
    if (*static_cast<volatile std::uint32_t*>(&mailbox.abort) != 0)
      return tell(mailbox, Mailbox::Event::aborted, peer, lane, sends);
    std::uint64_t now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    if (began_ns_ == 0) began_ns_ = now_ns;
    if (ring.timeout_ns != 0 && now_ns - began_ns_ > ring.timeout_ns)
      return tell(mailbox, Mailbox::Event::timeout, peer, lane, sends);
    if (now_ns - began_ns_ > ring.slow_ns * (told_ + 1)) {
      ++told_;  // again and again: the peer may leave between
      tell(mailbox, Mailbox::Event::slow, peer, lane, sends);
    }
    return false;
  }

 private:
  static constexpr std::uint32_t polls_between_looks = 4096;
  static __device__ bool tell(Mailbox& mailbox, Mailbox::Event event, std::uint32_t peer, std::uint32_t lane,
                              bool sends) {
    *static_cast<volatile std::uint32_t*>(&mailbox.peer) = peer;
    *static_cast<volatile std::uint32_t*>(&mailbox.lane) = lane;
    *static_cast<volatile std::uint32_t*>(&mailbox.sends) = sends ? 1 : 0;
    __threadfence_system();
    *reinterpret_cast<volatile std::uint32_t*>(&mailbox.event) = static_cast<std::uint32_t>(event);
    return true;
  }

  std::uint32_t polls_ = 0;
  std::uint64_t began_ns_ = 0;
  std::uint64_t told_ = 0;
};

/// User memory of any alignment, as granules of lines. A line's data lies 120 bytes after that of the line before it,
/// so that eight bytes are the widest access that all lines share.
class UserBytes {
 public:
  __device__ UserBytes(const std::byte* data) : data_(const_cast<std::byte*>(data)) {
    const auto bits = reinterpret_cast<std::uintptr_t>(data);
    alignment_ = bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
  }

  /// The granule at `offset`, of which `valid` bytes (at most 16) exist; the rest is zero.
  __device__ __forceinline__ Granule load(std::size_t offset, std::uint32_t valid) const {
    const std::byte* from = data_ + offset;
    if (alignment_ == 8 && valid >= 8) {
      Granule g{*reinterpret_cast<const std::uint64_t*>(from), 0};
      if (valid == 16) {
        g.high = *reinterpret_cast<const std::uint64_t*>(from + 8);
      } else {
        g.high = assemble(from + 8, valid - 8);
      }
      return g;
    }
    return {assemble(from, valid < 8 ? valid : 8), assemble(from + 8, valid < 8 ? 0 : valid - 8)};
  }
  __device__ __forceinline__ void store(std::size_t offset, std::uint32_t valid, const Granule& g) const {
    std::byte* to = data_ + offset;
    if (alignment_ == 8 && valid >= 8) {
      *reinterpret_cast<std::uint64_t*>(to) = g.low;
      if (valid == 16) {
        *reinterpret_cast<std::uint64_t*>(to + 8) = g.high;
      } else {
        scatter(to + 8, valid - 8, g.high);
      }
      return;
    }
    scatter(to, valid < 8 ? valid : 8, g.low);
    scatter(to + 8, valid < 8 ? 0 : valid - 8, g.high);
  }

 private:
  template <class T>
  static __device__ std::uint64_t assemble_from(const std::byte* from, std::uint32_t bytes) {
    std::uint64_t word = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < 8; i += sizeof(T))
      if (i < bytes) word |= std::uint64_t{*reinterpret_cast<const T*>(from + i)} << (8 * i);
    return word;
  }
  template <class T>
  static __device__ void scatter_to(std::byte* to, std::uint32_t bytes, std::uint64_t word) {
#pragma unroll
    for (std::uint32_t i = 0; i < 8; i += sizeof(T))
      if (i < bytes) *reinterpret_cast<T*>(to + i) = static_cast<T>(word >> (8 * i));
  }
  /// Whole pieces of the pointer's alignment where the length allows, else bytes.
  __device__ std::uint32_t piece(std::uint32_t bytes) const {
    return bytes % alignment_ == 0 ? alignment_ : bytes % 2 == 0 && alignment_ % 2 == 0 ? 2 : 1;
  }
  __device__ std::uint64_t assemble(const std::byte* from, std::uint32_t bytes) const {
    if (bytes == 0) return 0;
    const std::uint32_t size = piece(bytes);
    if (size >= 4) return assemble_from<std::uint32_t>(from, bytes);
    return size == 2 ? assemble_from<std::uint16_t>(from, bytes) : assemble_from<std::uint8_t>(from, bytes);
  }
  __device__ void scatter(std::byte* to, std::uint32_t bytes, std::uint64_t word) const {
    if (bytes == 0) return;
    const std::uint32_t size = piece(bytes);
    if (size >= 4) {
      scatter_to<std::uint32_t>(to, bytes, word);
    } else if (size == 2) {
      scatter_to<std::uint16_t>(to, bytes, word);
    } else {
      scatter_to<std::uint8_t>(to, bytes, word);
    }
  }

  std::byte* data_;
  std::uint32_t alignment_;
};

/// What of a piece of a chunk is this thread's: one granule.
struct Place {
  std::uint32_t offset;       ///< of its data in the chunk, bytes
  std::uint32_t slot_offset;  ///< in the slot, bytes
  std::uint32_t valid;        ///< bytes of its data that exist
  bool active;                ///< its line exists
};

__device__ __forceinline__ bool bears_flag() { return threadIdx.x % granules_per_line == granules_per_line - 1; }

__device__ __forceinline__ Place place_of(std::uint32_t piece, std::uint32_t chunk_bytes) {
  const std::uint32_t thread = threadIdx.x % warp_threads;
  const std::uint32_t line = piece * piece_data_bytes + thread / granules_per_line * line_data_bytes;
  Place place;
  place.offset = line + thread % granules_per_line * static_cast<std::uint32_t>(sizeof(Granule));
  place.slot_offset = piece * piece_bytes + thread * static_cast<std::uint32_t>(sizeof(Granule));
  const std::uint32_t most = bears_flag() ? 8 : 16;
  const std::uint32_t left = place.offset < chunk_bytes ? chunk_bytes - place.offset : 0;
  place.valid = left < most ? left : most;
  place.active = line < chunk_bytes;
  return place;
}

/// Peers in the order in which a rank serves them: k - 1 for the rank k after it, so that no link is hit by all ranks
/// at once.
__device__ __forceinline__ std::uint32_t position_of(std::uint32_t peer, std::uint32_t rank, std::uint32_t ranks) {
  return peer > rank ? peer - rank - 1 : peer + ranks - rank - 1;
}

/// A chunk on its way to a peer in this round, and one that comes. Kept in shared memory, one for each peer by
/// position. `bytes` == 0: none.
struct Outgoing {
  const std::byte* source;
  std::byte* slot;
  std::uint64_t flag;
  std::uint32_t bytes;
};
struct Incoming {
  const std::byte* slot;
  std::byte* destination;
  std::uint64_t flag;
  std::uint32_t bytes;
  std::uint32_t peer;
};

/// One peer's lane, in the registers of the one thread that looks after it.
class Lane {
 public:
  __device__ Lane(const Ring& ring, std::uint32_t peer) : ring_(ring), peer_(peer) {
    const LaneState& state = own_state();
    sent_ = state.sent;
    taken_ = given_back_ = state.taken;
    returned_ = load_word(&state.returned);
  }
  /// What later launches start from.
  __device__ void save() {
    LaneState& state = own_state();
    state.sent = sent_;
    state.taken = taken_;
  }

  /// Takes the next slot towards the peer, once it is free. False: gave up.
  __device__ bool next_slot(const std::byte* source, std::uint32_t bytes, std::uint16_t call_hash, Outgoing& chunk) {
    chunk.bytes = 0;
    if (bytes == 0) return true;
    Patience patience;
    while (sent_ >= returned_ + slot_depth) {
      returned_ = load_word(&own_state().returned);
      if (sent_ >= returned_ + slot_depth && patience.spent(ring_, peer_, blockIdx.x, true)) return false;
    }
    chunk = {source, slot(peer_, ring_.rank, sent_), flag(sent_, call_hash), bytes};
    ++sent_;
    return true;
  }
  /// Names the slot that the peer's next chunk comes in.
  __device__ void expect(std::byte* destination, std::uint32_t bytes, std::uint16_t call_hash, Incoming& chunk) {
    chunk.bytes = bytes;
    if (bytes == 0) return;
    chunk = {slot(ring_.rank, peer_, taken_), destination, flag(taken_, call_hash), bytes, peer_};
    ++taken_;
  }
  /// After a barrier that follows the last read of what was expected. The store needs no fence: it depends on the flags
  /// that came with the data, which every thread of the block has compared.
  __device__ void give_back() {
    if (taken_ == given_back_) return;
    given_back_ = taken_;
    auto* states = reinterpret_cast<LaneState*>(ring_.arenas[peer_]);
    store_word(&states[std::size_t{ring_.rank} * max_lanes + blockIdx.x].returned, taken_);
  }

 private:
  __device__ LaneState& own_state() const {
    return reinterpret_cast<LaneState*>(ring_.arenas[ring_.rank])[std::size_t{peer_} * max_lanes + blockIdx.x];
  }
  __device__ std::byte* slot(std::uint32_t reader, std::uint32_t writer, std::uint64_t use) const {
    const std::uint32_t k = position_of(writer, reader, ring_.ranks);
    const std::size_t index = std::size_t{k * ring_.lanes + blockIdx.x} * slot_depth + (use & (slot_depth - 1));
    return ring_.arenas[reader] + ArenaLayout::slots_offset_bytes(ring_.ranks) + index * slot_bytes;
  }
  /// Never zero, which fresh memory holds, and never twice the same.
  __device__ static std::uint64_t flag(std::uint64_t use, std::uint16_t call_hash) {
    return (use + 1) << 16 | call_hash;
  }

  const Ring& ring_;
  const std::uint32_t peer_;
  std::uint64_t sent_;
  std::uint64_t taken_;
  std::uint64_t returned_;
  std::uint64_t given_back_;
};

/// The pieces of several chunks, dealt to the warps of a block in turn. A warp works on `batch` of them at a time: all
/// are loaded before the first is stored, because one access takes as long as many.
template <int batch, class Body>
__device__ __forceinline__ bool for_tasks(std::uint32_t tasks, Body&& body) {
  const std::uint32_t warp = threadIdx.x / warp_threads, warps = blockDim.x / warp_threads;
  for (std::uint32_t first = warp; first < tasks; first += batch * warps) {
    std::uint32_t numbers[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) numbers[b] = first + b * warps;
    if (!body(numbers)) return false;
  }
  return true;
}

/// Writes a granule to its place in a slot, with the flag where it belongs.
__device__ __forceinline__ void send(const Outgoing& chunk, const Place& place, Granule value) {
  if (bears_flag()) value.high = chunk.flag;
  if (place.active) store_line_granule(chunk.slot + place.slot_offset, value);
}

inline constexpr int batch_size = 4;

/// A task among those of several chunks: which chunk, and this thread's place in which of its pieces.
struct Task {
  std::uint32_t chunk;
  Place place;
};
template <class Chunk>
__device__ __forceinline__ Task task_of(std::uint32_t number, const Chunk* chunks, std::uint32_t count) {
  const std::uint32_t piece = number / count, chunk = number - piece * count;
  return {chunk, place_of(piece, chunks[chunk].bytes)};
}

/// Sends all chunks: `count` of them, of at most `pieces` pieces each. `contribution(granule)` is what is sent of a
/// granule of the user's.
template <class Contribution>
__device__ __forceinline__ void push(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces,
                                     Contribution&& contribution) {
  const std::uint32_t tasks = count * pieces;
  for_tasks<batch_size>(tasks, [&](const std::uint32_t(&numbers)[batch_size]) {
    Task batch[batch_size];
    Granule values[batch_size];
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      if (numbers[b] >= tasks) continue;
      batch[b] = task_of(numbers[b], chunks, count);
      values[b] = UserBytes(chunks[batch[b].chunk].source).load(batch[b].place.offset, batch[b].place.valid);
    }
#pragma unroll
    for (int b = 0; b < batch_size; ++b)
      if (numbers[b] < tasks) send(chunks[batch[b].chunk], batch[b].place, contribution(values[b]));
    return true;
  });
}

/// A granule that is to come: where, and from whom. `slot` == nullptr: none.
struct Awaited {
  const std::byte* slot;
  std::uint64_t flag;
  std::uint32_t peer;
};

/// Loads granules until all have come, by a whole warp together. False: gave up.
template <int count>
__device__ __forceinline__ bool receive(const Ring& ring, const Awaited (&awaited)[count], Granule (&values)[count]) {
  Patience patience;
  for (;;) {
    std::uint32_t missing = max_ranks;
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (awaited[i].slot != nullptr) values[i] = load_line_granule(awaited[i].slot);
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (awaited[i].slot != nullptr && bears_flag() && values[i].high != awaited[i].flag) missing = awaited[i].peer;
    if (!__any_sync(0xffffffffu, missing != max_ranks)) return true;
    const bool gives_up = missing != max_ranks && patience.spent(ring, missing, blockIdx.x, false);
    if (__any_sync(0xffffffffu, gives_up)) return false;
  }
}

/// Takes all chunks to where they belong. False: gave up.
__device__ __forceinline__ bool collect(const Ring& ring, const Incoming* chunks, std::uint32_t count,
                                        std::uint32_t pieces) {
  const std::uint32_t tasks = count * pieces;
  return for_tasks<batch_size>(tasks, [&](const std::uint32_t(&numbers)[batch_size]) {
    Task batch[batch_size];
    Awaited awaited[batch_size];
    Granule values[batch_size];
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      awaited[b].slot = nullptr;
      if (numbers[b] >= tasks) continue;
      batch[b] = task_of(numbers[b], chunks, count);
      const Incoming& chunk = chunks[batch[b].chunk];
      if (batch[b].place.active) awaited[b] = {chunk.slot + batch[b].place.slot_offset, chunk.flag, chunk.peer};
    }
    if (!receive(ring, awaited, values)) return false;
#pragma unroll
    for (int b = 0; b < batch_size; ++b)
      if (numbers[b] < tasks)
        UserBytes(chunks[batch[b].chunk].destination).store(batch[b].place.offset, batch[b].place.valid, values[b]);
    return true;
  });
}

}  // namespace strait::kernels
