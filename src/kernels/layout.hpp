#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"

/// How an arena's memory is shared out between the protocols: the same on all ranks.
namespace strait::kernels {

enum class ArenaKind : std::uint8_t {
  nvlink,  ///< memory of peers, which takes 128 bytes whole: lines and bulk
  pcie,    ///< memory of peers, which does not: packets and bulk
  host     ///< pinned host memory: packets and bulk
};

/// Of the arenas that a ring trades through.
inline ArenaKind kind_of(const Ring& ring) {
  if (ring.staged) return ArenaKind::host;
  return ring.slots[static_cast<std::size_t>(Protocol::lines)].lanes != 0 ? ArenaKind::nvlink : ArenaKind::pcie;
}

struct ArenaLayout {
  ProtocolSlots slots[protocol_count];
  std::size_t size_bytes;
};

/// Words by which copy engines tell the kernel of Add what has come follow the flags: `copy_lanes` for each writer.
inline constexpr std::uint32_t copy_lanes = 2;
inline constexpr std::size_t copy_words_bytes = max_ranks * copy_lanes * sizeof(std::uint32_t);

/// Of a GPU's memory, with the arena's counts. Four ranks keep 64 MB of it: 8 are what CUDA takes.
inline constexpr std::size_t nvlink_arena_bytes = std::size_t{56} << 20;
inline constexpr std::size_t pcie_arena_bytes = std::size_t{60} << 20;
/// Of host memory, of all ranks of a host together.
inline constexpr std::size_t host_arenas_bytes = std::size_t{60} << 20;

/// `budget_bytes` in slots of at least `least_slot_bytes`, on as many lanes up to `most_lanes` as they allow.
constexpr ProtocolSlots share_out(std::size_t budget_bytes, std::uint32_t rings, std::uint32_t most_lanes,
                                  std::uint32_t least_slot_bytes, std::uint32_t most_slot_bytes) {
  const std::size_t lane_slots = std::size_t{rings} * slot_depth;
  const std::size_t lanes =
      std::clamp<std::size_t>(budget_bytes / (lane_slots * least_slot_bytes), 1, std::min(most_lanes, max_lanes));
  const std::size_t slot_bytes = std::min<std::size_t>(budget_bytes / (lane_slots * lanes), most_slot_bytes);
  return {0, static_cast<std::uint32_t>(slot_bytes / piece_bytes * piece_bytes), static_cast<std::uint32_t>(lanes)};
}

/// What one rank has for its arenas.
constexpr std::size_t arena_bytes(ArenaKind kind, std::uint32_t ranks) {
  if (kind == ArenaKind::host) return host_arenas_bytes / ranks;
  return kind == ArenaKind::nvlink ? nvlink_arena_bytes : pcie_arena_bytes;
}

/// Of an arena that `ranks` trade through, of at most `budget_bytes`.
constexpr ArenaLayout arena_layout(ArenaKind kind, std::uint32_t ranks, std::size_t budget_bytes) {
  constexpr std::uint32_t kb = 1 << 10;
  const bool is_host = kind == ArenaKind::host;
  const std::uint32_t rings = is_host ? ranks : std::max(ranks, 2u) - 1;
  const std::size_t flags_bytes = std::size_t{rings} * max_lanes * slot_depth * sizeof(std::uint64_t);
  const std::size_t first = (flags_offset_bytes + flags_bytes + copy_words_bytes + 4095) / 4096 * 4096;
  const std::size_t room = budget_bytes - first;
  ArenaLayout layout{{}, first};
  const auto place = [&](Protocol protocol, ProtocolSlots slots) {
    slots.offset_bytes = layout.size_bytes;
    layout.size_bytes += std::size_t{rings} * slots.lanes * slot_depth * slots.slot_bytes;
    layout.slots[static_cast<std::size_t>(protocol)] = slots;
  };
  if (kind == ArenaKind::nvlink)
    // Of four ranks 13 KB a slot, in which messages of 1.5 MB have one round: in 12 KB, two, which took 5 to 16% more.
    place(Protocol::lines, share_out(room * 9 / 25, rings, 128, 4 * kb, 16 * kb));
  else
    place(Protocol::packets, share_out(room / 4, rings, 16, 4 * kb, 16 * kb));
  // Also what those leave: of long messages each chunk costs a fence. But two thirds at most by NVLink, for the memory
  // of two ranks, whose slots that makes 74 KB: in 104 KB they moved 1 GB up to 4% faster than in 72, and in 48 KB 5%
  // slower. Of four ranks that is 24 KB, and 22 KB would take reductions from 32 MB on 5 to 8% more time. Elsewhere
  // lanes are many, for kernels that compute as they go (bulk_encoded.cuh); blocks that only copy serve several each,
  // because it is what they move between two fences that counts.
  const std::size_t left = budget_bytes - layout.size_bytes;
  place(Protocol::bulk, kind == ArenaKind::nvlink
                            ? share_out(std::min(left, room * 2 / 3), rings, 128, 16 * kb, 128 * kb)
                            : share_out(left, rings, 128, 8 * kb, 128 * kb));
  return layout;
}

constexpr ArenaLayout arena_layout(ArenaKind kind, std::uint32_t ranks) {
  return arena_layout(kind, ranks, arena_bytes(kind, ranks));
}

/// In memory of peers: the words of `writer` for `reader`.
inline std::uint32_t* copy_words(const Ring& ring, std::uint32_t writer, std::uint32_t reader) {
  const std::size_t flags_bytes = std::size_t{ring.ranks - 1} * max_lanes * slot_depth * sizeof(std::uint64_t);
  return reinterpret_cast<std::uint32_t*>(ring.arenas[reader] + flags_offset_bytes + flags_bytes) + writer * copy_lanes;
}

}  // namespace strait::kernels
