#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

/// What a launch hands to the kernels of this folder, and the memory that they share. Plain data, for host and device.
///
/// The line protocol. Data travels in lines of 128 bytes: 120 of data and, in the last 8, a flag that names the use of
/// the slot and the call. Eight neighbouring threads write a line in one store instruction, and the hardware delivers
/// it whole (NVLink, and memory of the same GPU), so that a reader that sees the flag sees the data: no fence, no
/// counter to wait for, 94% of the wire. (NCCL's LL128 rests on the same property.) Slots are reused in a ring; the
/// reader returns them by a counter in the writer's memory.
namespace strait::kernels {

inline constexpr std::uint32_t max_ranks = 16;
inline constexpr std::uint32_t max_lanes = 128;  ///< of a pair of ranks: each a ring of slots, used by one thread block
inline constexpr std::uint32_t slot_depth = 4;   ///< a power of two, and at least 4 (two_hop.cuh)
inline constexpr std::uint32_t line_bytes = 128;
inline constexpr std::uint32_t line_data_bytes = 120;
inline constexpr std::uint32_t slot_lines = 256;
inline constexpr std::uint32_t slot_bytes = slot_lines * line_bytes;            ///< in memory
inline constexpr std::uint32_t slot_data_bytes = slot_lines * line_data_bytes;  ///< of the user's
/// What a warp moves at a time: 4 lines. A multiple of 16 bytes and of every element. Chunks are whole pieces.
inline constexpr std::uint32_t piece_data_bytes = 4 * line_data_bytes;
inline constexpr std::uint32_t piece_bytes = 4 * line_bytes;
inline constexpr std::uint32_t max_threads = 512;  ///< of a block

/// The state of one lane of one pair of ranks. `sent` and `taken` are this rank's own memory of what it did, kept from
/// launch to launch, so that captured graphs replay right; `returned` is written by the peer that reads our slots.
struct LaneState {
  std::uint64_t sent;      ///< slots filled for the peer
  std::uint64_t taken;     ///< slots of the peer's read here
  std::uint64_t returned;  ///< slots that the peer has given back
  std::uint64_t reserved;
};

/// Where things lie in the arena, the same on every rank: first LaneState[peer][lane], then the slots that peers write,
/// [k - 1][lane][slot_depth] for the rank k after the arena's own.
struct ArenaLayout {
  /// The more peers, the fewer lanes, to keep the arena small.
  static constexpr std::uint32_t lanes(std::uint32_t ranks) { return ranks <= 4 ? max_lanes : max_lanes / 2; }
  static constexpr std::size_t slots_offset_bytes(std::uint32_t ranks) {
    return std::size_t{ranks} * max_lanes * sizeof(LaneState);
  }
  static constexpr std::size_t size_bytes(std::uint32_t ranks) {
    return slots_offset_bytes(ranks) + std::size_t{ranks - 1} * lanes(ranks) * slot_depth * slot_bytes;
  }
};

/// In mapped host memory, one a rank. The host raises `abort`; a kernel says there why and for whom it waits or gave
/// up.
struct Mailbox {
  enum class Event : std::uint32_t { none, slow, timeout, aborted };
  std::uint32_t abort = 0;
  Event event = Event::none;  ///< written last
  std::uint32_t peer = 0;
  std::uint32_t lane = 0;
  std::uint32_t sends = 0;  ///< it waits for the peer to take, not to send
};

/// Who runs, and with whom: the same for every launch of a communicator.
struct Ring {
  std::byte* arenas[max_ranks];  ///< by rank, as this device addresses them
  Mailbox* mailbox;
  std::uint64_t slow_ns;     ///< waits longer than this are told to the host
  std::uint64_t timeout_ns;  ///< waits longer than this end; 0: none does
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t lanes;  ///< ArenaLayout::lanes(ranks)
};

/// A run of bytes to or from a peer, cut into chunks that the lanes take in turn. Both ends compute the same cut from
/// the length.
struct Message {
  std::byte* data;
  std::size_t bytes;
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
  std::uint16_t call_hash;  ///< of the call's signature: calls that differ never take one another's lines
};

/// One hop. Every rank sends a message to every peer and takes one from it (either may be empty).
///  - As a copy: what comes from peer q is written to receive[q].data; receive[rank] is a copy of send[rank].
///  - As a reduction: what comes from the peers is reduced with send[rank], in rank order, into receive[rank].data; all
///    of them have its length. With receive[rank].bytes == 0 this rank only sends.
/// Accelerates the plans one_hop, direct and point_to_point.
struct Exchange {
  Ring ring;
  Message send[max_ranks];
  Message receive[max_ranks];
  std::uint64_t premul_scalar;  ///< an element, in the low bytes: this rank's own
  std::uint32_t pieces;         ///< of the longest chunk
  ReduceOp op;
};

/// Two hops. The message is cut into a slice for every owner. Contributors send slice o to owner o, who reduces the
/// contributions in rank order (copies, where there is but one), and sends the result to the receivers.
/// all-reduce: everyone is all three; reduce: all but the root own, the root receives; broadcast: the root contributes,
/// the others own and receive. Accelerates the plan two_hop.
struct TwoHop {
  Ring ring;
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;
  std::size_t slice_bytes;  ///< of each owner, the last ones less
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
  std::uint16_t call_hash;
  std::uint32_t pieces;        ///< of a chunk
  std::uint32_t contributors;  ///< bit r: rank r
  std::uint32_t owners;
  std::uint32_t receivers;
  std::uint64_t premul_scalar;
  ReduceOp op;
};

}  // namespace strait::kernels
