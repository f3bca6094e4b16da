#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

/// What a launch hands to the kernels of this folder, and the memory that they share. Plain data, for host and device.
///
/// Data travels through slots of fixed size, in rings that one rank writes and others read; a reader returns slots by a
/// counter in the writer's arena. How a reader learns that a slot's bytes are there is the protocol:
///  - lines, in the memory of peers that NVLink joins: 128 bytes, 120 of data and, in the last 8, a flag that names the
///    use of the slot and the call. Eight neighbouring threads write a line in one store instruction, and the hardware
///    delivers it whole, so that a reader that sees the flag sees the data: no fence, no counter to wait for, 94% of
///    the link. (NCCL's LL128 rests on the same property.)
///  - packets, in either memory: 16 bytes, 12 of data and 4 of flag. In host memory CUDA requires that 16 aligned
///    bytes are loaded and stored in one access (CUDA Programming Guide, "Mapped Memory"), and no more than these.
///    (NCCL's LL has 4 bytes of data for each flag.) For small messages.
///  - bulk, in either memory: nothing but data, a fence, and then one flag for the slot. For large messages.
/// In host memory one ring of a rank is multicast: written once, read by every other rank.
namespace strait::kernels {

enum class Protocol : std::uint8_t { lines, packets, bulk };
inline constexpr std::uint32_t protocol_count = 3;

inline constexpr std::uint32_t max_ranks = 16;
inline constexpr std::uint32_t max_lanes = 128;  ///< of a pair of ranks: each a ring of slots, used by one thread block
inline constexpr std::uint32_t slot_depth = 4;   ///< a power of two, and at least 4 (chunks.cuh)
inline constexpr std::uint32_t line_bytes = 128;
inline constexpr std::uint32_t line_data_bytes = 120;
/// What a warp moves at a time, in memory. Chunks are whole pieces.
inline constexpr std::uint32_t piece_bytes = 512;
/// The user's bytes in a piece: a multiple of 16 and of every element.
constexpr std::uint32_t piece_data_bytes(Protocol protocol) {
  return protocol == Protocol::lines ? piece_bytes / line_bytes * line_data_bytes
                                     : (protocol == Protocol::packets ? piece_bytes / 4 * 3 : piece_bytes);
}
inline constexpr std::uint32_t max_threads = 512;  ///< of a block
/// Lanes that a block serves at once where a launch has fewer blocks than its messages have lanes.
inline constexpr std::uint32_t max_width = 8;

/// Rings between two ranks, and from a rank to all others.
enum class Cast : std::uint8_t { single, multi };
inline constexpr std::uint32_t cast_count = 2;

/// What this rank did on one lane of one ring with a peer: in its own device's memory, kept from launch to launch, so
/// that captured graphs replay right.
struct alignas(16) LaneCounts {
  std::uint64_t sent;        ///< slots filled for the peer; all bits: a launch gave up here
  std::uint64_t taken;       ///< slots of the peer's read here
  std::uint64_t given_back;  ///< of those: the rest is given back by the next launch
  std::uint64_t returned;    ///< slots that the peer was last seen to have given back
};

/// [protocol][cast][peer][lane]
constexpr std::size_t lane_index(Protocol protocol, Cast cast, std::uint32_t peer, std::uint32_t lane) {
  return ((static_cast<std::size_t>(protocol) * cast_count + static_cast<std::size_t>(cast)) * max_ranks + peer) *
             max_lanes +
         lane;
}
inline constexpr std::size_t lane_count = std::size_t{protocol_count} * cast_count * max_ranks * max_lanes;

/// By which a slot's data are known to be there: never zero, which fresh memory holds, and never twice the same.
constexpr std::uint64_t slot_flag(std::uint64_t use, std::uint16_t call_hash) { return (use + 1) << 16 | call_hash; }

/// Every arena, the same on every rank, begins with the counters that peers return slots by, [lane_index()].
inline constexpr std::size_t returned_bytes = lane_count * sizeof(std::uint64_t);

/// Where the slots of one protocol lie in every arena, [ring][lane][slot_depth]. An arena of device memory holds what
/// its rank reads and the others write: ring k - 1 is of the rank k after it. One of host memory holds what its rank
/// writes and the others read: likewise, and the last ring is for all of them.
struct ProtocolSlots {
  std::size_t offset_bytes;
  std::uint32_t slot_bytes;  ///< whole pieces
  std::uint32_t lanes;       ///< 0: there are none
};
/// The flags of bulk slots, [ring][lane][slot_depth], follow the counters.
inline constexpr std::size_t flags_offset_bytes = returned_bytes;

/// Collectives of which a rank keeps that they have started: the last ones.
inline constexpr std::uint32_t kept_marks = 64;

/// What a rank's GPU has started last.
struct StartedMarks {
  /// The collective of each number modulo kept_marks: number << 32 | Ring::call. One store, so that none is torn.
  std::uint64_t calls[kept_marks];
  /// The last group of sends and receives. Not all ranks take part in one, so that it has no number of its own: the one
  /// here is that of the collective before it.
  std::uint64_t messages;
};

/// In mapped host memory, one a rank. The host raises `abort`; a kernel says there why and for whom it waits or gave
/// up. Nothing that waits for nobody writes here: the end of a launch would wait for the store.
struct Mailbox {
  enum class Event : std::uint32_t { none, slow, timeout, aborted };
  std::uint32_t abort = 0;
  Event event = Event::none;    ///< written last; the host takes it back
  std::uint32_t timed_out = 0;  ///< not 0: a wait was longer than its deadline. Stays, whatever else happens
  std::uint32_t aborted = 0;    ///< not 0: a wait was given up because of `abort`. Stays likewise
  std::uint32_t peer = 0;       ///< the communicator's rank (Ring::members)
  std::uint32_t lane = 0;
  std::uint32_t sends = 0;      ///< it waits for the peer to take, not to send
  std::uint32_t unreached = 0;  ///< of the probe: bit r: rank r of its ring
  /// Not 0: as `timed_out`, until the host has made that the communicator's error. Copies of copy engines wait for that
  /// (copy_engine::Gate).
  std::uint32_t holds_copies = 0;
  /// Not 0: a kernel has waited a while since the host last took this back, for the communicator's rank of this number
  /// less one, or of a greater one than there are for nobody in particular.
  std::uint32_t waits = 0;
  StartedMarks started = {};  ///< LaunchCounts::started, as of then
};

/// What the probe has found. Nothing is left of its waits, which are none of the communicator's.
inline std::uint32_t take_unreached(Mailbox& mailbox) {
  const std::uint32_t unreached = mailbox.unreached;
  mailbox = {};
  return unreached;
}

/// In this device's memory, one a rank: how far its launches are. The host reads a copy.
struct LaunchCounts {
  std::uint32_t collectives;  ///< that have started, in graphs too
  std::uint32_t begun;        ///< blocks of the launches that have begun, outside of graphs
  std::uint32_t finished;     ///< blocks that have ended, likewise: streams wait for it
  /// While a StraightExchange runs, else 0: chunks that its warps have taken, and blocks that are through with taking.
  std::uint32_t taken, through;
  StartedMarks started;
  constexpr bool have_ended() const { return begun == finished; }
};

/// Who runs, and with whom: the same for every launch. A communicator has one, and where its GPUs form islands one more
/// for the rank's island and one for those that it meets across islands.
struct Ring {
  std::byte* arenas[max_ranks];  ///< by rank, as this device addresses them
  LaneCounts* counts;            ///< in this device's memory: lane_count of them
  Mailbox* mailbox;
  std::uint64_t slow_ns;     ///< waits longer than this are told to the host
  std::uint64_t timeout_ns;  ///< waits longer than this end; 0: none does
  /// In this device's memory, where a rank has several rings, or launches may give up before all ranks know that the
  /// communicator has failed: not 0: one did, and none of any ring may follow with what it left behind. Else null.
  std::uint32_t* gave_up;
  LaunchCounts* launch_counts;  ///< null where nothing counts: of the probe
  std::uint32_t* finished;      ///< LaunchCounts::finished, or null in graphs
  /// Of the first launch of a call, which marks its start: a hash of its signature. 0: of any other.
  std::uint32_t call;
  bool is_message;  ///< the call is a group of sends and receives
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t averaged;           ///< contributions in a final result: what an average divides by
  bool staged;                      ///< the arenas are host memory, else that of peers
  bool has_async_copies;            ///< the GPUs of all ranks run piped kernels (kernels/piped.cuh)
  std::uint8_t members[max_ranks];  ///< by rank of the ring: the communicator's rank
  ProtocolSlots slots[protocol_count];
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

/// Of the chunks of a message, lane l takes l, l + lanes, l + 2 lanes...: the one of its round number `round`, if there
/// is one.
struct Chunk {
  std::size_t offset;
  std::uint32_t bytes;  ///< 0: none
};
constexpr Chunk chunk_at(const Message& message, std::uint32_t lane, std::uint32_t round) {
  const std::size_t offset = (std::size_t{round} * message.lanes + lane) * message.chunk_bytes;
  if (lane >= message.lanes || offset >= message.bytes) return {offset, 0};
  const std::size_t left = message.bytes - offset;
  return {offset, left < message.chunk_bytes ? static_cast<std::uint32_t>(left) : message.chunk_bytes};
}

/// The threads, whole warps, of a block that look after a set of its lanes: one for each lane of each rank.
constexpr std::uint32_t minders_of(std::uint32_t ranks, std::uint32_t width) { return (ranks * width + 31) / 32 * 32; }

inline constexpr std::uint32_t stagger_groups = 8;  ///< every eighth block is one

/// One hop. Every rank sends a message to every peer and takes one from it (either may be empty).
///  - As a copy: what comes from peer q is written to receive[q].data; receive[rank] is a copy of send[rank].
///  - As a reduction: what comes from the peers is reduced with send[rank], in rank order, into receive[rank].data; all
///    of them have its length. With receive[rank].bytes == 0 this rank only sends.
/// Accelerates the plans one_hop, direct and point_to_point.
struct Exchange {
  Ring ring;
  Message send[max_ranks];
  Message receive[max_ranks];
  PremulScalar premul_scalar;  ///< this rank's own
  std::uint32_t pieces;        ///< of the longest chunk
  std::uint32_t rounds;        ///< in which a lane moves the longest message
  ReduceOp op;
  DataType type;
  Cast cast;            ///< multi: what a rank sends is the same for every peer, and goes to all of them
  std::uint32_t width;  ///< of bulk, lanes that a block serves at once: it, and every gridDim.x-th after it; else 1
  /// Of bulk: what is sent is so many rounds ahead of what is taken; less than slot_depth. 0: nothing is, or nothing is
  /// sent.
  std::uint32_t lead = 1;
  std::uint32_t stagger_ns = 0;  ///< of bulk: by so much each group of blocks begins after the one before
};

/// An exchange as a copy, of bulk, straight into what all ranks have registered: what goes to rank r begins at
/// there[r], as this device addresses it. All messages have one length and are cut into chunks alike, which the warps
/// of all blocks take in turn. `receive` and `rounds` mean nothing, and the width is 1.
struct StraightExchange : Exchange {
  std::byte* there[max_ranks];
};

/// What peers have registered last, as this rank addresses it: by number, which is the same on all ranks, each at its
/// place modulo most_registered. Kernels get it with their arguments: to read it from the host's memory took them 40 us
/// and more where links are full.
inline constexpr std::uint32_t most_registered = 8;
struct RegisteredPlaces {
  std::uint64_t numbers[most_registered];  ///< 0: none
  std::byte* begins[most_registered][max_ranks];
};

/// Where a rank lets a peer write, in a word that leaves 16 bits to who sends it: the lower bits of the registration's
/// number, and how far from its beginning in granules. 0: nowhere.
inline constexpr std::uint32_t offer_bits = 48, offered_distance_bits = 32;
inline std::uint64_t offer_of(std::uint64_t number, std::size_t distance_bytes) {
  const std::uint64_t granules = distance_bytes / 16;
  if (distance_bytes % 16 != 0 || granules >> offered_distance_bits != 0) return 0;
  return (number & 0xffff) << offered_distance_bits | granules;
}

/// An exchange as a copy, in bulk, of messages that do not wait for one another. Of those of `least_bytes` and more who
/// receives offers its output, if that is registered, and the sender writes there, without slots, from that chunk on
/// before which it sees the offer (offered_messages.cuh).
struct OfferedMessages : Exchange {
  std::size_t least_bytes;
  RegisteredPlaces registered;
  std::uint64_t offers[max_ranks];  ///< by sender: of receive[r]
};

/// One call of an Aggregate, as an Exchange whose messages all have one length: what goes to rank r, and what comes
/// from it, begin r strides into the buffers. Or an all-reduce in two hops: first a slice goes to each rank, which
/// reduces its own at `receive`, and then goes from there to all.
struct AggregatedCall {
  std::byte* send;
  std::byte* receive;
  PremulScalar premul_scalar;
  std::uint32_t send_stride_bytes;
  std::uint32_t receive_stride_bytes;
  std::uint32_t bytes;        ///< of a message, or of a slice
  std::uint32_t whole_bytes;  ///< of slices, the last ones of which are shorter; 0: one hop
  std::uint32_t chunk_bytes;
  std::uint32_t pieces;  ///< of a chunk
  std::uint32_t rounds;
  std::uint32_t call;  ///< Ring::call
  std::uint16_t to;    ///< bit r: there is a message to rank r
  std::uint16_t from;
  std::uint16_t call_hash;
  std::uint8_t first_lane;
  std::uint8_t lanes;
  std::uint8_t first_block;
  std::uint8_t blocks;
  std::uint8_t width;  ///< as in an Exchange
  ReduceOp op;
  DataType type;
  Cast cast;  ///< as in an Exchange; of two hops, of the second
};

inline constexpr std::uint32_t max_aggregated = 32;  ///< that arguments have room for, and less than kept_marks

/// Several collectives, each an Exchange on lanes and with blocks of its own, by one protocol. They do not wait for one
/// another.
struct Aggregate {
  static constexpr std::uint8_t no_call = max_aggregated;
  Ring ring;  ///< Ring::call means nothing
  std::uint32_t count;
  AggregatedCall calls[max_aggregated];
  std::uint8_t call_of_block[max_lanes];  ///< its place in `calls`, or no_call
};

/// Two hops. The message is cut into a slice for every owner. Contributors send slice o to owner o, who reduces the
/// contributions in rank order (copies, where there is but one), and sends the result to the receivers.
/// all-reduce: everyone is all three; reduce: all own, the root a shorter slice, or all but the root, which receives;
/// broadcast: the root contributes, the others own and receive. Accelerates the plan two_hop.
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
  std::uint32_t rounds;        ///< in which a lane moves the longest slice
  std::uint32_t contributors;  ///< bit r: rank r
  std::uint32_t owners;
  std::uint32_t first_owners;  ///< of these, those whose slices come first, in rank order; another one has the last
  std::uint32_t receivers;
  PremulScalar premul_scalar;
  ReduceOp op;
  DataType type;
  Cast results;              ///< multi: all ranks are receivers
  std::uint32_t width;       ///< as in an Exchange
  std::uint32_t stagger_ns;  ///< of bulk, as in an Exchange
};

/// How what an Exchange or a TwoHop moves is encoded on its way (base/wire_format.hpp). Lengths of its messages, chunks
/// and slices count elements in the place of bytes; slices are whole blocks, chunks whole granular runs.
struct Encoding {
  std::uint32_t element_bytes;
  bool premultiplies;  ///< elements are multiplied by the scalar first
  /// One float an element of what is sent (error feedback), which begins at `elements`; or null.
  float* residual;
  const std::byte* elements;
};
/// In bulk. As a copy each rank's own part is encoded and decoded, too; as a reduction what all contribute is, and of
/// two hops the sum.
struct EncodedExchange : Exchange {
  Encoding encoding;
};
struct EncodedTwoHop : TwoHop {
  Encoding encoding;
};

/// Adds chunks up while copy engines bring them (executor/copy_engine/peer_copies.hpp). Chunk k of what rank r
/// contributes lies in slot k % depth of windows[r]; this rank's own contribution is `input`. Blocks share each chunk.
struct Add {
  Ring ring;
  const std::byte* windows[max_ranks];
  /// By rank: the words that say how many chunks it has put there, of the even ones, and of the odd ones.
  const std::uint32_t* contributed[max_ranks];
  std::uint32_t* added[max_ranks];  ///< by rank: where it is told how many chunks are done
  std::uint32_t* shares_done;       ///< in this device's memory: `depth` words, 0 before and after the launch
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;
  std::uint32_t chunk_bytes;  ///< a multiple of 16
  std::uint32_t depth;
  ReduceOp op;
  DataType type;
};

}  // namespace strait::kernels
