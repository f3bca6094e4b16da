#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "kernels/launch.hpp"

/// What GPU ranks of several hosts trade: a kernel brings data into pinned host memory, a thread of the host (the
/// rank's proxy, network/network_proxy.hpp) exchanges it with other hosts, and the kernel takes what has come.
/// Plain data, for host and device.
///
/// A call goes in rounds. Of a round the kernel's blocks fill a slot together, each with its share of every flow, and
/// say so by a counter of their own; the proxy carries the round out between that slot and one for what comes, and says
/// so by its counter. The kernel is up to network_depth rounds ahead of what has been carried out, and what came. A
/// block fills the slot of a round only when that slot's last round has been carried out, in whichever call that was,
/// and it has taken what came of it: so the proxy, which waits for all blocks, may write both. A launch to which
/// nothing comes ends once all is in slots, and the next one begins while that is carried out.
///
/// What a call sends may become ready while it is on its way: then several launches make its steps, and what is
/// left on its way between them is for the next one to take. Sends and receives have no rounds: each flow has a ring of
/// pieces and two counters of its own, and one block, so that none waits for another. Their rings lie otherwise than
/// slots do: they, and the first rounds after them, wait until all calls before have been carried out.
///
/// All counters go on from call to call, and live in memory, so that graphs replay right: what the proxy is to do it
/// hears from the kernel, with each launch.
namespace strait::kernels {

inline constexpr std::uint32_t network_depth = 8;  ///< slots each way, and calls on their way; a power of two
inline constexpr std::uint32_t max_network_blocks = 16;
inline constexpr std::uint32_t max_flows = 88;  ///< that arguments have room for

/// A run of the user's bytes that is sent or received, a piece in each round; or as a message, piece after piece.
struct Flow {
  std::byte* data;            ///< in this device's memory, of any alignment
  std::size_t bytes;          ///< at least 1
  std::uint32_t piece_bytes;  ///< of a round, less in the last one; a multiple of 16
  std::uint32_t slot_offset;  ///< in a round's slot, or of a message's ring among all slots; a multiple of 16
  std::uint8_t depth;         ///< of a message: pieces of the ring
  std::uint8_t lane;          ///< likewise: of the proxy
  std::uint8_t block;         ///< of a collective: pieces lie one after the other in the slot; this one's place
  /// Of a message that is received: its pieces are taken only when as many have been filled of the flow at this place
  /// less one, for they overwrite what that sends; 0: of none.
  std::uint8_t after;
  std::uint16_t peer;         ///< of a message: the rank that it goes to or comes from, of those that the call is among
  DataType type;              ///< likewise
  bool sends;                 ///< it goes from `data` to the slot
  std::uint64_t whole_bytes;  ///< of a message, of which this is a stripe
};

/// The piece of that round, or the one of a message of that number; bytes == 0: none.
constexpr Chunk piece_of(const Flow& flow, std::uint32_t round) {
  const std::size_t offset = std::size_t{round} * flow.piece_bytes;
  if (offset >= flow.bytes) return {offset, 0};
  const std::size_t left = flow.bytes - offset;
  return {offset, left < flow.piece_bytes ? static_cast<std::uint32_t>(left) : flow.piece_bytes};
}
/// Where it lies in the round's slot. Blocks of an odd length lie at places of any alignment.
constexpr std::size_t slot_place(const Flow& flow, const Chunk& piece) {
  return flow.slot_offset + std::size_t{flow.block} * piece.bytes;
}
/// How many pieces it has.
constexpr std::uint32_t pieces_of(const Flow& flow) {
  return static_cast<std::uint32_t>((flow.bytes + flow.piece_bytes - 1) / flow.piece_bytes);
}

/// What the proxy does with the flows of a call.
struct NetworkCall {
  enum class Among : std::uint8_t {
    across,  ///< one rank of each host
    all      ///< the communicator
  };
  std::uint32_t rounds;  ///< at least 1; of messages 0
  std::uint32_t flow_count;
  std::uint32_t blocks;  ///< of each of its launches
  std::uint32_t root;
  std::size_t count;        ///< elements of a collective in one round; 0: as the pieces say
  std::size_t whole_count;  ///< then: of the whole call, all rounds together
  Among among;
  Collective collective;  ///< send_recv: each flow is a message
  DataType type;
  ReduceOp op;
  WireFormat wire;
  bool is_awaited;  ///< until it has been carried out: something comes, or it is a barrier
  /// Of a call with a residual (Call::residual): runs of floats in the slots, one for each block that is sent, from
  /// this offset on in both. What comes back is what the format lost. 0: none.
  std::uint32_t residual_blocks, residual_offset;
};

/// By all launches of a call: step k brings round k into its slot, and takes what came of round k - network_depth.
constexpr std::uint32_t steps_of(const NetworkCall& call) {
  return call.rounds + (call.is_awaited ? network_depth : 0);
}

/// In the host memory of a rank, pinned, before its slots. What the device writes, and what the host does, lie on lines
/// of their own.
struct NetworkWords {
  struct alignas(128) Word {
    std::uint64_t value;
  };
  /// What the proxy is to do. Those of calls that follow one another lie apart.
  struct alignas(128) Description {
    NetworkCall call;
    Flow flows[max_flows];
  };
  Word posted;                      ///< by the device: calls that it has described
  Word calls_done, rounds_done;     ///< by the host: that it has carried out
  Word pushed[max_network_blocks];  ///< by the device, each block: rounds of which its share is in the slots
  Word moved[max_flows];            ///< by the device: pieces of a message that it has filled, or taken
  Word ready[max_flows];            ///< by the host: pieces that it has sent and are free again, or that have come
  Description descriptions[network_depth];
  constexpr Description& description_of(std::uint64_t call) { return descriptions[call % network_depth]; }
};
inline constexpr std::size_t network_words_bytes = (sizeof(NetworkWords) + 4095) / 4096 * 4096;

/// In this device's memory: what earlier calls came to. Zeros at first.
struct NetworkCounts {
  std::uint64_t calls, rounds;
  std::uint64_t calls_done, rounds_done;  ///< by the host, as far as anybody has looked
  std::uint64_t messages;                 ///< calls up to the last one that was messages
  std::uint32_t through;                  ///< blocks of this launch that have ended
  std::uint32_t gave_up;                  ///< not 0: a launch did, and none may follow
  std::uint64_t pieces[max_flows];        ///< of messages, by the place of their flow
};

/// For network_exchange_kernel(): `call.blocks` blocks, of at most max_threads threads.
struct NetworkExchange {
  Ring ring;  ///< of one rank: its mailbox and launch counts
  NetworkWords* words;
  /// network_depth for what is sent, and behind them as many for what comes, as the device addresses them.
  std::byte* slots;
  NetworkCounts* counts;
  std::uint32_t slot_bytes;
  std::uint32_t first_step, end_step;  ///< of steps_of(call), that this launch makes; of messages both 0
  /// What stays with the rank, of this device's memory; kept_bytes == 0: nothing.
  std::byte* kept_to;
  const std::byte* kept_from;
  std::uint32_t kept_bytes;
  NetworkCall call;
  Flow flows[max_flows];
};
static_assert(sizeof(NetworkExchange) <= 4096, "arguments of kernels");
static_assert(max_flows < 256, "Flow::after");

/// Where the slot of a round lies, among all rounds since the beginning.
constexpr std::size_t network_slot(std::uint64_t round, bool sends, std::uint32_t slot_bytes) {
  return ((sends ? 0 : network_depth) + round % network_depth) * slot_bytes;
}
constexpr std::size_t network_slots_bytes(std::uint32_t slot_bytes) {
  return std::size_t{2} * network_depth * slot_bytes;
}
constexpr std::size_t network_bytes(std::uint32_t slot_bytes) {
  return network_words_bytes + network_slots_bytes(slot_bytes);
}

/// For cudaLaunchKernel; the one argument is a NetworkExchange.
const void* network_exchange_kernel();
/// Likewise of sends and receives: the flow at place i is that of block i modulo the number of blocks, at most 32 each.
const void* network_messages_kernel();

}  // namespace strait::kernels
