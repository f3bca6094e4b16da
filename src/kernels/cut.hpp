#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"

/// How messages are cut into chunks for lanes. The cut depends only on the length and on the number of lanes that the
/// communicator may use, so both ends of a message cut it alike.
namespace strait::kernels {

/// Returns the protocol of small messages.
inline Protocol flagged_protocol(const Ring& ring) {
  return kind_of(ring) == ArenaKind::nvlink ? Protocol::lines : Protocol::packets;
}

/// Returns the length below which a chunk is not worth a block of its own. Packets cross PCIe, where what a lane writes
/// and reads besides data costs 0.1 to 0.2 us: an all-gather of 16 KB on two H200 takes 7.0 us on 16 lanes and 6.4 on
/// 8.
constexpr std::size_t min_chunk_bytes(Protocol protocol) {
  return protocol == Protocol::packets ? std::size_t{2} << 10 : std::size_t{2} * piece_data_bytes(protocol);
}

struct Cut {
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
};

/// The slots that chunks go through: `lanes` lanes at most, with slots of `slot_bytes`, served by at most `blocks`
/// thread blocks.
struct Slots {
  Protocol protocol;
  std::uint32_t slot_bytes;
  std::uint32_t lanes;
  std::uint32_t blocks;
  std::uint32_t rounds = 1;  ///< each lane gets at least this many chunks, if the message has that many
  bool piped = false;        ///< whether ranks use piped kernels if they can (piped.hpp)
  /// If piped: the blocks that serve the lanes on a rank that cannot use piped kernels.
  std::uint32_t blocks_unpiped = 0;
  /// Bulk: chunk lengths are multiples of this, which is itself a multiple of 16; 0: multiples of a piece.
  std::size_t grain_bytes = 0;
};

/// Returns the slots of a protocol for at most `max_blocks` thread blocks (0: one for each lane). Only in bulk, where
/// slots have separate flags, can a block serve several lanes.
inline Slots slots_of(const Ring& ring, Protocol protocol, std::uint32_t max_blocks,
                      std::uint32_t most_lanes = max_lanes) {
  const ProtocolSlots& all = ring.slots[static_cast<std::size_t>(protocol)];
  const std::uint32_t lanes = std::min(all.lanes, most_lanes);
  const std::uint32_t blocks = max_blocks == 0 ? lanes : std::min(max_blocks, lanes);
  const std::uint32_t width = protocol == Protocol::bulk ? std::clamp(lanes / std::max(blocks, 1u), 1u, max_width) : 1;
  return {protocol, all.slot_bytes, blocks * width, blocks};
}

inline Cut cut(const Slots& through, std::size_t bytes) {
  const Protocol protocol = through.protocol;
  const std::size_t rounds = through.rounds;
  const std::size_t piece = through.grain_bytes != 0 ? through.grain_bytes : piece_data_bytes(protocol);
  const std::size_t slot = through.slot_bytes / piece_bytes * piece_data_bytes(protocol) / piece * piece;
  const std::size_t least = std::min((min_chunk_bytes(protocol) + piece - 1) / piece * piece, slot);
  // Use no more lanes than blocks if these move the message in the same number of rounds: a few long chunks cost less
  // than many short ones.
  const std::size_t blocks = std::max(through.blocks, 1u), block_bytes = blocks * slot * rounds;
  const std::size_t wanted = blocks * std::max((bytes + block_bytes - 1) / block_bytes, std::size_t{1});
  const std::size_t lanes = std::min<std::size_t>(std::clamp(through.lanes, 1u, max_lanes), wanted);
  const std::size_t fair = (bytes + lanes - 1) / lanes;
  // Every lane gets the same number of rounds, all of the same length: a short last round takes as much time as a full
  // one.
  const std::size_t needed = (fair + slot - 1) / slot;
  const std::size_t chunk_rounds = std::max(needed, rounds);
  const std::size_t length = (fair + chunk_rounds - 1) / chunk_rounds;
  const std::size_t pieces = (length + piece - 1) / piece;
  const std::size_t chunk = std::clamp(pieces * piece, least, slot);
  const std::size_t chunks = (bytes + chunk - 1) / chunk;
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint16_t>(std::clamp<std::size_t>(chunks, 1, lanes))};
}

/// Cuts the messages of one call. In most calls all messages have the same length, which is then cut only once.
class Cutter {
 public:
  Cutter(const Slots& through, std::uint16_t call_hash) : through_(through), call_hash_(call_hash) {}
  Message operator()(const void* data, std::size_t bytes) {
    if (bytes != bytes_) parts_ = cut(through_, bytes);
    bytes_ = bytes;
    return {static_cast<std::byte*>(const_cast<void*>(data)), bytes, parts_.chunk_bytes, parts_.lanes, call_hash_};
  }

 private:
  Slots through_;
  std::uint16_t call_hash_;
  std::size_t bytes_ = ~std::size_t{0};
  Cut parts_{};
};

inline Message message(const Slots& through, const void* data, std::size_t bytes, std::uint16_t call_hash) {
  return Cutter(through, call_hash)(data, bytes);
}

/// Returns the number of rounds in which the lanes move a message.
inline std::uint32_t rounds_of(std::size_t bytes, const Cut& parts) {
  const std::size_t round_bytes = std::max(std::size_t{parts.chunk_bytes} * parts.lanes, std::size_t{1});
  return static_cast<std::uint32_t>((bytes + round_bytes - 1) / round_bytes);
}

/// Returns whether messages of a launch would wait for one another if they were moved round by round.
inline bool depend_on_one_another(const Exchange& exchange, Protocol protocol) {
  std::uint32_t ends = 0, sent_rounds = 0, received = 0;
  for (std::uint32_t peer = 0; peer < exchange.ring.ranks; ++peer) {
    if (peer == exchange.ring.rank) continue;
    const Message& sent = exchange.send[peer];
    if (sent.bytes != 0) sent_rounds = std::max(sent_rounds, rounds_of(sent.bytes, {sent.chunk_bytes, sent.lanes}));
    received += exchange.receive[peer].bytes != 0 ? 1 : 0;
    ends += (sent.bytes != 0 ? 1 : 0) + (exchange.receive[peer].bytes != 0 ? 1 : 0);
  }
  // Sends of short messages wait for no rank, and in each round they precede the receives.
  return protocol == Protocol::bulk ? ends > 1 : sent_rounds > 1 && received != 0;
}

inline std::uint32_t pieces_of(Protocol protocol, std::size_t chunk_bytes) {
  return static_cast<std::uint32_t>((chunk_bytes + piece_data_bytes(protocol) - 1) / piece_data_bytes(protocol));
}

/// The blocks of a launch, and how many lanes each of them serves at once.
struct Shape {
  std::uint32_t blocks;
  std::uint32_t width;
};
/// Returns the shape of a launch whose messages use `lanes` lanes. Lanes of a block beyond these are idle, but they
/// need counters of their own (hence blocks * width <= max_lanes): otherwise the block would load and save the counters
/// of the next peer's lanes.
inline Shape shape_of(const Slots& through, std::uint32_t lanes, bool piped = false) {
  const std::uint32_t most = through.piped && !piped ? through.blocks_unpiped : through.blocks;
  std::uint32_t blocks = std::clamp(lanes, 1u, std::max(most, 1u));
  for (;;) {
    const std::uint32_t width = (lanes + blocks - 1) / blocks;
    if (blocks * width <= max_lanes) return {blocks, width};
    blocks = max_lanes / width;
  }
}

/// Returns the threads of a block: a warp for each piece of each lane to each peer, up to max_threads, and at least one
/// thread for each lane of each rank. If a launch has two `sets` of lanes, each set has threads of its own.
inline std::uint32_t threads_for(std::uint32_t pieces, std::uint32_t ranks, std::uint32_t width,
                                 std::uint32_t sets = 1) {
  const std::uint32_t peers = std::max(ranks, 2u) - 1;
  return std::clamp(32 * pieces * peers * width, sets * lane_managers_of(ranks, width), max_threads);
}

}  // namespace strait::kernels
