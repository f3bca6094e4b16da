#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

/// The arguments of the kernels in this folder, and the layout of the memory that they share. Plain data, for host and
/// device.
///
/// Data travels through slots of fixed size, which form ring buffers. Each ring is written by one rank and read by
/// another (or by all others); the reader returns slots through a counter in the writer's arena. In host memory each
/// rank also has a multicast ring, which it writes once and all other ranks read. A ring has up to max_lanes lanes,
/// each with slot_depth slots that are used in turn. A slot holds one chunk of a message. Warps move chunks in pieces
/// of 512 bytes, threads in granules of 16 bytes. The protocol determines how a reader learns that the bytes of a slot
/// have arrived:
///  - lines, in the memory of peers that NVLink joins: 128 bytes, 120 of data and, in the last 8, a flag that
///    identifies the use of the slot and the call. Eight neighbouring threads write a line in one store instruction,
///    and the hardware delivers it whole, so a reader that sees the flag sees the data. This needs neither a fence nor
///    a counter to wait for, and uses 94% of the link. (NCCL's LL128 relies on the same property.)
///  - packets, in peer memory or host memory: 16 bytes, 12 of data and 4 of flag, for small messages. For host memory
///    CUDA requires that the machine loads and stores 16 aligned bytes in one access (CUDA Programming Guide, "Mapped
///    Memory"), but no more than 16. (NCCL's LL has 4 bytes of data for each flag.)
///  - bulk, in peer memory or host memory: only data, then a fence, and then one flag for the whole slot; for large
///    messages.
namespace strait::kernels {

enum class Protocol : std::uint8_t { lines, packets, bulk };
inline constexpr std::uint32_t protocol_count = 3;

inline constexpr std::uint32_t max_ranks = 16;
/// Lanes of a ring at most. Each lane has slots and counters of its own, and one thread block serves it.
inline constexpr std::uint32_t max_lanes = 128;
inline constexpr std::uint32_t slot_depth = 4;  ///< slots of a lane: a power of two, and at least 4 (see chunks.cuh)
inline constexpr std::uint32_t line_bytes = 128;
inline constexpr std::uint32_t line_data_bytes = 120;
/// The bytes of a slot that a warp moves at a time. Slots and chunks consist of whole pieces.
inline constexpr std::uint32_t piece_bytes = 512;
/// The bytes of user data in a piece: a multiple of 16 and of the size of every element type.
constexpr std::uint32_t piece_data_bytes(Protocol protocol) {
  return protocol == Protocol::lines ? piece_bytes / line_bytes * line_data_bytes
                                     : (protocol == Protocol::packets ? piece_bytes / 4 * 3 : piece_bytes);
}
inline constexpr std::uint32_t max_threads = 512;  ///< threads of a block at most
/// Lanes at most that a block serves at once, if a launch has fewer blocks than its messages have lanes.
inline constexpr std::uint32_t max_width = 8;

/// Whether a ring is between two ranks, or from one rank to all others.
enum class Cast : std::uint8_t { single, multi };
inline constexpr std::uint32_t cast_count = 2;

/// Progress of this rank on one lane of its rings to and from a peer. It lies in this device's memory and is kept from
/// launch to launch, so that replays of captured graphs continue where the last launch ended.
struct alignas(16) LaneCounts {
  std::uint64_t sent;            ///< slots filled for the peer; all bits set if a launch gave up on this lane
  std::uint64_t taken;           ///< slots of the peer that this rank has read
  std::uint64_t returned_by_us;  ///< slots of the peer returned so far; the next launch returns the rest
  std::uint64_t returned_to_us;  ///< slots that the peer was last seen to have returned
};

/// Returns the place of a lane in arrays that are indexed [protocol][cast][peer][lane].
constexpr std::size_t lane_index(Protocol protocol, Cast cast, std::uint32_t peer, std::uint32_t lane) {
  return ((static_cast<std::size_t>(protocol) * cast_count + static_cast<std::size_t>(cast)) * max_ranks + peer) *
             max_lanes +
         lane;
}
inline constexpr std::size_t lane_count = std::size_t{protocol_count} * cast_count * max_ranks * max_lanes;

/// Returns the flag that marks a slot's data as arrived. It is never zero, which is what fresh memory holds, and never
/// the same for two uses of a slot.
constexpr std::uint64_t slot_flag(std::uint64_t use, std::uint16_t call_hash) { return (use + 1) << 16 | call_hash; }

/// Size of the counters through which readers return slots. Every arena begins with them, on every rank; their index is
/// lane_index().
inline constexpr std::size_t returned_bytes = lane_count * sizeof(std::uint64_t);

/// Location of one protocol's slots, which is the same in every arena: [ring][lane][slot_depth]. An arena in device
/// memory holds what its rank reads and others write; ring k - 1 is written by the rank that is k places after it. An
/// arena in host memory holds what its rank writes and others read; ring k - 1 is read by the rank that is k places
/// after it, and the last ring by all other ranks.
struct ProtocolSlots {
  std::size_t offset_bytes;
  std::uint32_t slot_bytes;  ///< a multiple of piece_bytes
  std::uint32_t lanes;       ///< 0 if the arena has no slots of this protocol
};
/// Offset of the flags of bulk slots, [ring][lane][slot_depth], which follow the counters.
inline constexpr std::size_t flags_offset_bytes = returned_bytes;
/// Distance from the flag of a bulk slot to its label, in rings to CPU threads (Exchange::label).
inline constexpr std::size_t label_distance = std::size_t{max_lanes} * slot_depth;
constexpr std::uint64_t slot_label(std::uint32_t label, std::uint32_t bytes) {
  return std::uint64_t{bytes} << 32 | label;
}

/// Number of most recent collectives whose start a rank remembers.
inline constexpr std::uint32_t kept_marks = 64;

/// The calls that a rank's GPU has started most recently.
struct StartedMarks {
  /// At index n % kept_marks: collective number n, as n << 32 | Ring::call. One store writes both, so a reader never
  /// sees them torn.
  std::uint64_t calls[kept_marks];
  /// The most recent group of sends and receives, in the same format. Not all ranks take part in a group, so it has no
  /// number of its own; its number here is that of the collective before it.
  std::uint64_t messages;
};

/// One rank's mailbox in mapped host memory. The host raises `abort`; a kernel writes here why and for which peer it
/// waits, or why it gave up. Only kernels that wait for somebody may write here, because the end of a launch waits for
/// its stores to host memory.
struct Mailbox {
  enum class Event : std::uint32_t { none, slow, timeout, aborted };
  std::uint32_t abort = 0;
  Event event = Event::none;    ///< written last, after the other fields; the host resets it
  std::uint32_t timed_out = 0;  ///< nonzero once a wait has exceeded its deadline; never reset
  std::uint32_t aborted = 0;    ///< nonzero once a wait was given up because of `abort`; never reset
  std::uint32_t peer = 0;       ///< rank in the communicator of the peer that is waited for (Ring::members)
  std::uint32_t lane = 0;
  std::uint32_t sends = 0;      ///< nonzero if the kernel waits for the peer to return a slot rather than to send
  std::uint32_t unreached = 0;  ///< result of the probe: bit r is set if rank r of its ring was not reached
  /// Nonzero from the moment when `timed_out` is set until the host has made the timeout the communicator's error.
  /// Copies by copy engines wait until it is zero (copy_engine::Gate).
  std::uint32_t holds_copies = 0;
  /// Nonzero if a kernel has waited for a while since the host last reset this word. The value is 1 + the rank in the
  /// communicator that it waits for; a value beyond the number of ranks means no rank in particular.
  std::uint32_t waits = 0;
  StartedMarks started = {};  ///< copy of LaunchCounts::started, made when `waits` was last set by block 0
};

/// Returns what the probe has found, and resets the mailbox, so that the probe's waits are not taken for waits of the
/// communicator.
inline std::uint32_t take_unreached(Mailbox& mailbox) {
  const std::uint32_t unreached = mailbox.unreached;
  mailbox = {};
  return unreached;
}

/// How far the launches of a rank have come. It lies in this device's memory; the host reads a copy.
struct LaunchCounts {
  std::uint32_t collectives;  ///< collectives that have started, including those in graphs
  std::uint32_t begun;        ///< blocks of all launches that have begun, without those in graphs
  std::uint32_t finished;     ///< blocks that have ended, without those in graphs; streams wait for this word
  /// Used while a StraightExchange runs, otherwise 0: chunks that its warps have claimed, and blocks that claim no
  /// more.
  std::uint32_t chunks_claimed, blocks_done;
  StartedMarks started;
  constexpr bool have_ended() const { return begun == finished; }
};

/// Ring::slow_ns of waits that are never reported. A multiple of slow_ns is waited for before each further report,
/// which must not wrap.
inline constexpr std::uint64_t never_slow_ns = ~std::uint64_t{0} >> 8;

/// The ranks that exchange data, and this rank's memory for it; almost the same for every launch. A communicator has
/// one ring. If its GPUs form islands, it has one more for the rank's island, and one for the ranks that exchange data
/// across islands.
struct Ring {
  std::byte* arenas[max_ranks];  ///< by rank, as addresses of this device
  LaneCounts* counts;            ///< lane_count of them, in this device's memory
  Mailbox* mailbox;
  std::uint64_t slow_ns;     ///< waits longer than this are reported to the host (never_slow_ns: none)
  std::uint64_t timeout_ns;  ///< waits longer than this are given up; 0: no deadline
  /// A word in this device's memory that is nonzero once a launch on any of the rank's rings has given up. No later
  /// launch on any ring may run then, because it would send what that launch left behind. It exists if a rank has
  /// several rings, or if launches may give up before all ranks know that the communicator has failed; otherwise null.
  std::uint32_t* gave_up;
  LaunchCounts* launch_counts;  ///< null for the probe, which is not counted
  std::uint32_t* finished;      ///< LaunchCounts::finished, or null in graphs
  /// Hash of the call's signature in the first launch of a call, which marks the start of the call; 0 in all other
  /// launches.
  std::uint32_t call;
  bool is_message;  ///< whether the call is a group of sends and receives
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t averaged;  ///< number of contributions in a final result, by which an average divides
  bool staged;             ///< whether the arenas are host memory; otherwise they are device memory of the ranks
  bool has_async_copies;   ///< whether the GPUs of all ranks can run piped kernels (kernels/piped.cuh)
  std::uint8_t members[max_ranks];  ///< by rank of this ring: the rank in the communicator
  ProtocolSlots slots[protocol_count];
};

/// A run of bytes to or from a peer, cut into chunks that the lanes take in turn. Both ends compute the same cut from
/// the length.
struct Message {
  std::byte* data;
  std::size_t bytes;
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
  /// Hash of the call's signature: ranks that make different calls do not accept each other's data
  std::uint16_t call_hash;
};

/// One chunk of a message. Lane l moves chunks l, l + lanes, l + 2 * lanes...; in round `round` it moves the chunk with
/// number round * lanes + l, if that exists.
struct Chunk {
  std::size_t offset;
  std::uint32_t bytes;  ///< 0: no chunk
};
constexpr Chunk chunk_at(const Message& message, std::uint32_t lane, std::uint32_t round) {
  const std::size_t offset = (std::size_t{round} * message.lanes + lane) * message.chunk_bytes;
  if (lane >= message.lanes || offset >= message.bytes) return {offset, 0};
  const std::size_t left = message.bytes - offset;
  return {offset, left < message.chunk_bytes ? static_cast<std::uint32_t>(left) : message.chunk_bytes};
}

/// Returns how many threads of a block, in whole warps, manage a set of its lanes: one thread for each lane of each
/// rank.
constexpr std::uint32_t lane_managers_of(std::uint32_t ranks, std::uint32_t width) {
  return (ranks * width + 31) / 32 * 32;
}

inline constexpr std::uint32_t stagger_groups = 8;  ///< block b is in group b % stagger_groups

/// One hop: every rank sends a message to every peer and receives one from it (either may be empty).
///  - As a copy: data from peer q is written to receive[q].data; receive[rank] is a copy of send[rank].
///  - As a reduction: data from all peers is reduced with send[rank], in rank order, into receive[rank].data; all these
///    messages have the length of receive[rank]. If receive[rank].bytes == 0, this rank only sends.
/// Accelerates the plans one_hop, direct and point_to_point.
struct Exchange {
  Ring ring;
  Message send[max_ranks];
  Message receive[max_ranks];
  PremulScalar premul_scalar;  ///< this rank's own scalar
  std::uint32_t pieces;        ///< pieces of the longest chunk
  std::uint32_t rounds;        ///< rounds in which a lane moves the longest message
  ReduceOp op;
  DataType type;
  Cast cast;  ///< multi: a rank sends the same data to all peers, written once for all
  /// Lanes that a block serves at once in bulk: the lane with the block's number, and every gridDim.x-th lane after it.
  /// 1 in other protocols.
  std::uint32_t width;
  /// Bulk: the number of rounds by which sending runs ahead of receiving; less than slot_depth. 0 if this rank receives
  /// nothing or sends nothing.
  std::uint32_t lead = 1;
  std::uint32_t stagger_ns = 0;  ///< bulk: the delay from the start of one group of blocks to that of the next
  /// If not 0, the peer is CPU threads, which know nothing of the call: each slot gets its slot_label().
  std::uint32_t label = 0;
};

/// An exchange that copies, in bulk, directly into outputs that all ranks have registered. Data for rank r is written
/// to destinations[r], an address of this device. All messages have the same length and are cut into chunks alike,
/// which the warps of all blocks take in turn. `receive` and `rounds` are unused, and `width` is 1.
struct StraightExchange : Exchange {
  std::byte* destinations[max_ranks];
};

/// The most recent registrations of all ranks, as addresses of this device. A registration's number is the same on all
/// ranks; its index is its number modulo most_registered. Kernels receive this with their arguments: reading it from
/// host memory took 40 us, and more on busy links.
inline constexpr std::uint32_t most_registered = 8;
struct RegisteredPlaces {
  std::uint64_t numbers[most_registered];  ///< 0: unused entry
  std::byte* begins[most_registered][max_ranks];
};

/// An offer says where a rank lets a peer write: the low 16 bits of the registration's number, and the distance from
/// the beginning of that registration in granules (16 bytes). It has offer_bits bits, which leaves the kernel 16 bits
/// of a word for other uses. 0: no place can be offered.
inline constexpr std::uint32_t offer_bits = 48, offered_distance_bits = 32;
inline std::uint64_t offer_of(std::uint64_t number, std::size_t distance_bytes) {
  const std::uint64_t granules = distance_bytes / 16;
  if (distance_bytes % 16 != 0 || granules >> offered_distance_bits != 0) return 0;
  return (number & 0xffff) << offered_distance_bits | granules;
}

/// An exchange that copies, in bulk, messages that do not wait for one another. The receiver of a message of at least
/// `least_bytes` offers its output to the sender if that output is registered. Once the sender sees the offer, it
/// writes all further chunks directly there, without slots (offered_messages.cuh).
struct OfferedMessages : Exchange {
  std::size_t least_bytes;
  RegisteredPlaces registered;
  std::uint64_t offers[max_ranks];  ///< by sender r: the offer for receive[r], or 0
};

/// One call of an Aggregate. With one hop it is like an Exchange whose messages all have the same length: the message
/// to rank r begins r * send_stride_bytes into `send`, that from rank r begins r * receive_stride_bytes into `receive`.
/// With two hops it is an all-reduce: first each rank gets its slice, which it reduces into `receive`; from there the
/// slice goes to all.
struct AggregatedCall {
  std::byte* send;
  std::byte* receive;
  PremulScalar premul_scalar;
  std::uint32_t send_stride_bytes;
  std::uint32_t receive_stride_bytes;
  std::uint32_t bytes;        ///< length of a message, or of a slice
  std::uint32_t whole_bytes;  ///< two hops: length of all slices together, of which the last are shorter; 0: one hop
  std::uint32_t chunk_bytes;
  std::uint32_t pieces;  ///< pieces of a chunk
  std::uint32_t rounds;
  std::uint32_t call;  ///< as Ring::call
  std::uint16_t to;    ///< bit r is set if there is a message to rank r; `from`: from rank r
  std::uint16_t from;
  std::uint16_t call_hash;
  std::uint8_t first_lane;
  std::uint8_t lanes;
  std::uint8_t first_block;
  std::uint8_t blocks;
  std::uint8_t width;  ///< as Exchange::width
  ReduceOp op;
  DataType type;
  Cast cast;  ///< as Exchange::cast; with two hops, that of the second hop
};

inline constexpr std::uint32_t max_aggregated = 32;  ///< limited by the size of kernel arguments; less than kept_marks

/// Several collectives in one launch. Each is carried out like an Exchange, on lanes and with blocks of its own, and
/// all use the same protocol. They do not wait for one another.
struct Aggregate {
  static constexpr std::uint8_t no_call = max_aggregated;
  Ring ring;  ///< Ring::call is unused; see AggregatedCall::call
  std::uint32_t count;
  AggregatedCall calls[max_aggregated];
  std::uint8_t call_index_of_block[max_lanes];  ///< the index in `calls` of the block's call, or no_call
};

/// Two hops. The message is cut into one slice for each owner. Contributors send slice o to owner o, which reduces the
/// contributions in rank order (or copies, if there is only one contributor) and sends the result to the receivers.
///  - all-reduce: every rank is a contributor, an owner and a receiver.
///  - reduce: every rank contributes, and the root receives. Every rank owns a slice, the root a shorter one; or every
///    rank except the root does.
///  - broadcast: the root contributes; all others own a slice and receive.
/// Accelerates the plan two_hop.
struct TwoHop {
  Ring ring;
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;
  std::size_t slice_bytes;  ///< length of each owner's slice; the last slices may be shorter
  std::uint32_t chunk_bytes;
  std::uint16_t lanes;
  std::uint16_t call_hash;
  std::uint32_t pieces;        ///< pieces of a chunk
  std::uint32_t rounds;        ///< rounds in which a lane moves the longest slice
  std::uint32_t contributors;  ///< bit r stands for rank r, as in the other sets
  std::uint32_t owners;
  /// The owners whose slices come first, in rank order. An owner that is not among them has the last slice.
  std::uint32_t first_owners;
  std::uint32_t receivers;
  PremulScalar premul_scalar;
  ReduceOp op;
  DataType type;
  Cast results;              ///< multi: all ranks are receivers, and a result is written once for all
  std::uint32_t width;       ///< as Exchange::width
  std::uint32_t stagger_ns;  ///< as Exchange::stagger_ns
};

/// How an Exchange or a TwoHop encodes the data that it sends (base/wire_format.hpp). The lengths of its messages,
/// chunks and slices then count elements instead of bytes. Slices consist of whole blocks of the format, chunks of
/// whole granular runs.
struct Encoding {
  std::uint32_t element_bytes;
  bool premultiplies;  ///< whether elements are multiplied by the scalar first (premul_sum)
  /// One float for each element that this rank sends (error feedback), or null. residual[0] belongs to the element at
  /// `elements`.
  float* residual;
  const std::byte* elements;
};
/// An exchange in bulk that encodes. As a copy, a rank's own part is encoded and decoded, too. As a reduction, all
/// contributions are, including the rank's own; in two hops the sum is encoded as well.
struct EncodedExchange : Exchange {
  Encoding encoding;
};
struct EncodedTwoHop : TwoHop {
  Encoding encoding;
};

/// Adds up chunks while copy engines deliver them (executor/copy_engine/peer_copies.hpp). Chunk k of rank r's
/// contribution lies in slot k % depth of windows[r]; this rank's own contribution is `input`. All blocks share the
/// work on each chunk.
struct Add {
  Ring ring;
  const std::byte* windows[max_ranks];
  /// By rank, two words: the number of chunks that the rank has delivered so far, updated in word 0 for chunks with an
  /// even index and in word 1 for chunks with an odd index.
  const std::uint32_t* contributed[max_ranks];
  std::uint32_t* added[max_ranks];  ///< by rank: the word through which it learns how many chunks have been added
  /// `depth` counters in this device's memory, one for each slot: blocks that have added their share of its chunk. All
  /// are 0 before and after the launch.
  std::uint32_t* shares_done;
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;
  std::uint32_t chunk_bytes;  ///< a multiple of 16
  std::uint32_t depth;
  ReduceOp op;
  DataType type;
};

}  // namespace strait::kernels
