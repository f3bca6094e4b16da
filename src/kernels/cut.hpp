#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"

/// How messages are cut into chunks and lanes: from the length and the number of lanes that the communicator may use
/// alone, so that both ends of a message cut alike.
namespace strait::kernels {

/// What small messages travel as.
inline Protocol flagged_protocol(const Ring& ring) {
  return kind_of(ring) == ArenaKind::nvlink ? Protocol::lines : Protocol::packets;
}

/// A chunk of less than this is not worth a block of its own. Packets cross PCIe, where what a lane writes and reads
/// apart from data costs 0.1 to 0.2 us: an all-gather of 16 KB on two H200 takes 7.0 us on 16 lanes and 6.4 on 8.
constexpr std::size_t min_chunk_bytes(Protocol protocol) {
  return protocol == Protocol::packets ? std::size_t{2} << 10 : std::size_t{2} * piece_data_bytes(protocol);
}

struct Cut {
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
};

/// What chunks travel through: slots of `slot_bytes`, on at most `lanes` lanes, which at most `blocks` thread blocks
/// serve.
struct Slots {
  Protocol protocol;
  std::uint32_t slot_bytes;
  std::uint32_t lanes;
  std::uint32_t blocks;
  std::uint32_t rounds = 1;          ///< at least so many chunks for each lane, as far as the message has them
  bool piped = false;                ///< by piped kernels, on each rank that can (piped.hpp)
  std::uint32_t blocks_unpiped = 0;  ///< piped: that serve the lanes of a rank which cannot
  std::size_t grain_bytes = 0;       ///< bulk: what chunks are multiples of, of 16 itself; 0: pieces
};

/// Blocks serve several lanes each only of a protocol that flags slots.
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
  // No more lanes than blocks where these move the message in no more rounds: long chunks cost less than many.
  const std::size_t blocks = std::max(through.blocks, 1u), block_bytes = blocks * slot * rounds;
  const std::size_t wanted = blocks * std::max((bytes + block_bytes - 1) / block_bytes, std::size_t{1});
  const std::size_t lanes = std::min<std::size_t>(std::clamp(through.lanes, 1u, max_lanes), wanted);
  const std::size_t fair = (bytes + lanes - 1) / lanes;
  // As many rounds for each lane, all of the same length: a short last one costs as much time as a full one.
  const std::size_t needed = (fair + slot - 1) / slot;
  const std::size_t chunk_rounds = std::max(needed, rounds);
  const std::size_t length = (fair + chunk_rounds - 1) / chunk_rounds;
  const std::size_t pieces = (length + piece - 1) / piece;
  const std::size_t chunk = std::clamp(pieces * piece, least, slot);
  const std::size_t chunks = (bytes + chunk - 1) / chunk;
  return {static_cast<std::uint32_t>(chunk), static_cast<std::uint16_t>(std::clamp<std::size_t>(chunks, 1, lanes))};
}

/// Messages of one call: of most calls all have one length, which is cut once.
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

/// In which the lanes move the message.
inline std::uint32_t rounds_of(std::size_t bytes, const Cut& parts) {
  const std::size_t round_bytes = std::max(std::size_t{parts.chunk_bytes} * parts.lanes, std::size_t{1});
  return static_cast<std::uint32_t>((bytes + round_bytes - 1) / round_bytes);
}

/// Whether messages of a launch would wait for one another, were they moved round by round.
inline bool depend_on_one_another(const Exchange& exchange, Protocol protocol) {
  std::uint32_t ends = 0, sent_rounds = 0, received = 0;
  for (std::uint32_t peer = 0; peer < exchange.ring.ranks; ++peer) {
    if (peer == exchange.ring.rank) continue;
    const Message& sent = exchange.send[peer];
    if (sent.bytes != 0) sent_rounds = std::max(sent_rounds, rounds_of(sent.bytes, {sent.chunk_bytes, sent.lanes}));
    received += exchange.receive[peer].bytes != 0 ? 1 : 0;
    ends += (sent.bytes != 0 ? 1 : 0) + (exchange.receive[peer].bytes != 0 ? 1 : 0);
  }
  // Short ones that are sent wait for nobody, and in each round come before what is received.
  return protocol == Protocol::bulk ? ends > 1 : sent_rounds > 1 && received != 0;
}

inline std::uint32_t pieces_of(Protocol protocol, std::size_t chunk_bytes) {
  return static_cast<std::uint32_t>((chunk_bytes + piece_data_bytes(protocol) - 1) / piece_data_bytes(protocol));
}

/// The blocks of a launch, and how many lanes each serves at once.
struct Shape {
  std::uint32_t blocks;
  std::uint32_t width;
};
/// What a block looks after beyond the message's lanes is idle, but it must have counters of its own: else it would
/// take and put back those of the next peer's lanes.
inline Shape shape_of(const Slots& through, std::uint32_t lanes, bool piped = false) {
  const std::uint32_t most = through.piped && !piped ? through.blocks_unpiped : through.blocks;
  std::uint32_t blocks = std::clamp(lanes, 1u, std::max(most, 1u));
  for (;;) {
    const std::uint32_t width = (lanes + blocks - 1) / blocks;
    if (blocks * width <= max_lanes) return {blocks, width};
    blocks = max_lanes / width;
  }
}

/// The threads of a block: a warp for each piece on each of its lanes to each of the peers, as far as a block has them,
/// and one for each lane of each rank; where there are two `sets` of lanes, two.
inline std::uint32_t threads_for(std::uint32_t pieces, std::uint32_t ranks, std::uint32_t width,
                                 std::uint32_t sets = 1) {
  const std::uint32_t peers = std::max(ranks, 2u) - 1;
  return std::clamp(32 * pieces * peers * width, sets * minders_of(ranks, width), max_threads);
}

}  // namespace strait::kernels
