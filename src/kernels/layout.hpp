#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"

/// How the memory of an arena is divided among the protocols; the same on all ranks.
namespace strait::kernels {

enum class ArenaKind : std::uint8_t {
  nvlink,  ///< device memory of peers that NVLink joins, where 128 bytes arrive whole: lines and bulk
  pcie,    ///< device memory of peers, where only 16 bytes do: packets and bulk
  host     ///< pinned host memory: packets and bulk
};

/// Returns the kind of the arenas through which a ring exchanges data.
inline ArenaKind kind_of(const Ring& ring) {
  if (ring.staged) return ArenaKind::host;
  return ring.slots[static_cast<std::size_t>(Protocol::lines)].lanes != 0 ? ArenaKind::nvlink : ArenaKind::pcie;
}

struct ArenaLayout {
  ProtocolSlots slots[protocol_count];
  std::size_t size_bytes;
};

/// Words through which copy engines tell the kernel of Add which chunks have arrived: `copy_lanes` for each writer.
/// They follow the flags.
inline constexpr std::uint32_t copy_lanes = 2;
inline constexpr std::size_t copy_words_bytes = max_ranks * copy_lanes * sizeof(std::uint32_t);

/// Device memory of an arena, including its counters. With four ranks a communicator takes 64 MB in all: CUDA takes the
/// other 8.
inline constexpr std::size_t nvlink_arena_bytes = std::size_t{56} << 20;
inline constexpr std::size_t pcie_arena_bytes = std::size_t{60} << 20;
/// Host memory of the arenas of all ranks of a host together.
inline constexpr std::size_t host_arenas_bytes = std::size_t{60} << 20;

/// Divides `budget_bytes` into slots of at least `least_slot_bytes`, for as many lanes as fit, up to `most_lanes`.
constexpr ProtocolSlots share_out(std::size_t budget_bytes, std::uint32_t rings, std::uint32_t most_lanes,
                                  std::uint32_t least_slot_bytes, std::uint32_t most_slot_bytes) {
  const std::size_t lane_slots = std::size_t{rings} * slot_depth;
  const std::size_t lanes =
      std::clamp<std::size_t>(budget_bytes / (lane_slots * least_slot_bytes), 1, std::min(most_lanes, max_lanes));
  const std::size_t slot_bytes = std::min<std::size_t>(budget_bytes / (lane_slots * lanes), most_slot_bytes);
  return {0, static_cast<std::uint32_t>(slot_bytes / piece_bytes * piece_bytes), static_cast<std::uint32_t>(lanes)};
}

/// Returns the size of one rank's arena.
constexpr std::size_t arena_bytes(ArenaKind kind, std::uint32_t ranks) {
  if (kind == ArenaKind::host) return host_arenas_bytes / ranks;
  return kind == ArenaKind::nvlink ? nvlink_arena_bytes : pcie_arena_bytes;
}

/// Returns the layout of an arena of at most `budget_bytes` for exchanges among `ranks` ranks.
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
    // With four ranks a slot has 13 KB, so messages of 1.5 MB take one round. With 12 KB they took two rounds and 5 to
    // 16% more time.
    place(Protocol::lines, share_out(room * 9 / 25, rings, 128, 4 * kb, 16 * kb));
  else
    place(Protocol::packets, share_out(room / 4, rings, 16, 4 * kb, 16 * kb));
  // Bulk also gets what the other protocol leaves, because each chunk of a long message costs a fence. By NVLink it
  // gets at most two thirds. This saves memory with two ranks, whose slots then have 74 KB. With slots of 104 KB they
  // moved 1 GB up to 4% faster than with 72 KB, and with 48 KB 5% slower. With four ranks slots have 24 KB; with 22 KB
  // reductions from 32 MB on would take 5 to 8% more time. In other memory there are many lanes, for kernels that
  // compute while data moves (bulk_encoded.cuh). Blocks that only copy serve several lanes each, because their rate
  // depends on how much they move between two fences.
  const std::size_t left = budget_bytes - layout.size_bytes;
  place(Protocol::bulk, kind == ArenaKind::nvlink
                            ? share_out(std::min(left, room * 2 / 3), rings, 128, 16 * kb, 128 * kb)
                            : share_out(left, rings, 128, 8 * kb, 128 * kb));
  return layout;
}

constexpr ArenaLayout arena_layout(ArenaKind kind, std::uint32_t ranks) {
  return arena_layout(kind, ranks, arena_bytes(kind, ranks));
}

/// Returns the words that `writer` writes for `reader`, in the reader's arena. Only for arenas in device memory.
inline std::uint32_t* copy_words(const Ring& ring, std::uint32_t writer, std::uint32_t reader) {
  const std::size_t flags_bytes = std::size_t{ring.ranks - 1} * max_lanes * slot_depth * sizeof(std::uint64_t);
  return reinterpret_cast<std::uint32_t*>(ring.arenas[reader] + flags_offset_bytes + flags_bytes) + writer * copy_lanes;
}

}  // namespace strait::kernels
