#pragma once

#include "kernels/protocol.cuh"

/// The probe of peers' memory (probe.cu).
namespace strait::kernels {

/// `attempt`: below 256. What an earlier attempt has left proves nothing to a later one.
constexpr std::uint64_t probe_word(std::uint32_t attempt, std::uint32_t from, std::uint32_t to) {
  return 0x5374726169000000ull | attempt << 16 | from << 8 | to | 0x80;
}

/// Returns a word where the first flags of bulk slots will be; probe_word() is never one of these flags.
__device__ __forceinline__ std::uint64_t* probe_cell(const Ring& ring, std::uint32_t owner, std::uint32_t writer) {
  return reinterpret_cast<std::uint64_t*>(ring.arenas[owner] + flags_offset_bytes) + writer;
}

/// Returns whether what this rank writes can be read back from the peer's memory, and whether what the peer writes
/// arrives in this rank's.
__device__ __forceinline__ bool reaches(const Ring& ring, std::uint32_t attempt, std::uint32_t peer) {
  if (peer >= ring.ranks || peer == ring.rank) return true;
  const std::uint64_t mine = probe_word(attempt, ring.rank, peer), theirs = probe_word(attempt, peer, ring.rank);
  store_word(probe_cell(ring, peer, ring.rank), mine);
  PollMonitor monitor;
  while (load_word(probe_cell(ring, ring.rank, peer)) != theirs || load_word(probe_cell(ring, peer, ring.rank)) != mine)
    if (monitor.must_give_up(ring, peer, 0, false)) return false;
  return true;
}

}  // namespace strait::kernels
