#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"

/// How messages are cut into chunks and lanes: from the length and the number of lanes that the communicator may use
/// alone, so that both ends of a message cut alike.
namespace strait::kernels {

/// What small messages travel as.
inline Wire flagged_wire(const Ring& ring) {
  return ring.slots[static_cast<std::size_t>(Wire::lines)].lanes != 0 ? Wire::lines : Wire::packets;
}

/// A chunk of less than this is not worth a block of its own. Packets cross PCIe, where what a lane writes and reads
/// apart from data costs 0.1 to 0.2 us: an all-gather of 16 KB on two H200 takes 7.0 us on 16 lanes and 6.4 on 8.
constexpr std::size_t min_chunk_bytes(Wire wire) {
  return wire == Wire::packets ? std::size_t{2} << 10 : std::size_t{2} * piece_data_bytes(wire);
}

struct Cut {
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
};

/// What chunks travel through: slots of `slot_bytes`, on at most `lanes` lanes.
struct Slots {
  Wire wire;
  std::uint32_t slot_bytes;
  std::uint32_t lanes;
};

/// `rounds`: at least so many chunks for each lane, as far as the message has them.
inline Cut cut(const Slots& through, std::size_t bytes, std::size_t rounds = 1) {
  const Wire wire = through.wire;
  const std::size_t piece = piece_data_bytes(wire), slot = through.slot_bytes / piece_bytes * piece;
  const std::size_t lanes = std::clamp(through.lanes, 1u, max_lanes);
  const std::size_t fair = (bytes + lanes - 1) / lanes;
  // As many rounds for each lane, all of the same length: a short last one costs as much time as a full one.
  const std::size_t needed = (fair + slot - 1) / slot;
  const std::size_t chunk_rounds = std::max({needed, rounds, std::size_t{1}});
  const std::size_t length = (fair + chunk_rounds - 1) / chunk_rounds;
  const std::size_t pieces = (length + piece - 1) / piece;
  const std::size_t chunk = std::clamp(pieces * piece, min_chunk_bytes(wire), slot);
  const std::size_t chunks = (bytes + chunk - 1) / chunk;
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint16_t>(std::clamp<std::size_t>(chunks, 1, lanes))};
}

inline Message message(const Slots& through, const void* data, std::size_t bytes, std::uint16_t call_hash) {
  const Cut parts = cut(through, bytes);
  return {static_cast<std::byte*>(const_cast<void*>(data)), bytes, parts.chunk_bytes, parts.lanes, call_hash};
}

/// In which the lanes move the message.
inline std::uint32_t rounds_of(std::size_t bytes, const Cut& parts) {
  const std::size_t round_bytes = std::max(std::size_t{parts.chunk_bytes} * parts.lanes, std::size_t{1});
  return static_cast<std::uint32_t>((bytes + round_bytes - 1) / round_bytes);
}

inline std::uint32_t pieces_of(Wire wire, std::size_t chunk_bytes) {
  return static_cast<std::uint32_t>((chunk_bytes + piece_data_bytes(wire) - 1) / piece_data_bytes(wire));
}

/// The threads of a block: a warp for each piece to each of `peers`, as far as a block has them.
inline std::uint32_t threads_for(std::uint32_t pieces, std::uint32_t peers) {
  return std::clamp(32 * pieces * peers, 32u, max_threads);
}

}  // namespace strait::kernels
