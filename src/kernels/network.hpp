#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "kernels/launch.hpp"

/// How GPU ranks of several hosts exchange data: a kernel copies data into pinned host memory, a host thread (the
/// rank's proxy, network/network_proxy.hpp) exchanges it with other hosts, and the kernel fetches what has arrived.
/// Plain data, for host and device.
///
/// A call is carried out in rounds. All blocks of the kernel fill the slot of a round together, each with its share of
/// every flow; then each block advances a counter of its own. The proxy exchanges the round between that slot and a
/// slot for received data, and then advances its counter. The kernel may be up to network_depth rounds ahead of the
/// proxy. A block fills the slot of a round only after two things have happened: the last round that used this slot has
/// been carried out, whichever call it belonged to, and the block has fetched what that round received. The proxy waits
/// for all blocks, so it may write to both slots. A launch that receives nothing ends once all its data is in slots,
/// and the next launch begins while the proxy still carries the data out.
///
/// Some data of a call may become ready only while the call is on its way. Several launches then make the steps of the
/// call, and each continues with the rounds that the one before left on their way. Sends and receives have no rounds:
/// each flow has a ring of pieces, two counters of its own, and one block, so that no message waits for another. These
/// rings occupy the slots' memory in a different layout. Therefore they, and the first rounds after them, wait until
/// all earlier calls have been carried out.
///
/// All counters continue from call to call and are kept in memory, so that graphs replay correctly: each launch of the
/// kernel tells the proxy what to do.
namespace strait::kernels {

inline constexpr std::uint32_t network_depth = 8;  ///< slots for each direction, and calls in progress; a power of two
inline constexpr std::uint32_t max_network_blocks = 16;
inline constexpr std::uint32_t max_flows = 88;  ///< limited by the size of kernel arguments

/// A run of user memory that is sent or received: one piece in each round of a collective, or, as a message, piece
/// after piece.
struct Flow {
  std::byte* data;            ///< in this device's memory, with any alignment
  std::size_t bytes;          ///< at least 1
  std::uint32_t piece_bytes;  ///< length of a piece; the last one may be shorter. A multiple of 16
  /// Offset in the slot of a round; for a message, the offset of its ring in the memory of all slots. A multiple of 16.
  std::uint32_t slot_offset;
  std::uint8_t depth;  ///< message: pieces of its ring
  std::uint8_t lane;   ///< message: the proxy's lane that carries it
  /// Collective: the place of this flow's pieces among those of all ranks' blocks, which are contiguous in the slot.
  std::uint8_t block;
  /// A received message that overwrites what another flow sends: 1 + the index of that flow. A piece is fetched only
  /// after as many pieces of that flow are in its ring. 0: no such flow.
  std::uint8_t after;
  /// Message: the rank that it goes to or comes from, among the ranks of the call (NetworkCall::among).
  std::uint16_t peer;
  DataType type;              ///< message: its type
  bool sends;                 ///< whether data goes from `data` to the slot
  std::uint64_t whole_bytes;  ///< message: length of the whole message, of which this flow is a stripe
};

/// Returns the piece of a round, or the piece of a message with this number; bytes == 0 if there is none.
constexpr Chunk piece_of(const Flow& flow, std::uint32_t round) {
  const std::size_t offset = std::size_t{round} * flow.piece_bytes;
  if (offset >= flow.bytes) return {offset, 0};
  const std::size_t left = flow.bytes - offset;
  return {offset, left < flow.piece_bytes ? static_cast<std::uint32_t>(left) : flow.piece_bytes};
}
/// Returns the offset of a piece in the slot of its round. Pieces of odd length lie at any alignment.
constexpr std::size_t slot_place(const Flow& flow, const Chunk& piece) {
  return flow.slot_offset + std::size_t{flow.block} * piece.bytes;
}
/// Returns the number of pieces of a flow.
constexpr std::uint32_t pieces_of(const Flow& flow) {
  return static_cast<std::uint32_t>((flow.bytes + flow.piece_bytes - 1) / flow.piece_bytes);
}

/// What the proxy does with the flows of a call.
struct NetworkCall {
  enum class Among : std::uint8_t {
    across,  ///< one rank of each host
    all      ///< all ranks of the communicator
  };
  std::uint32_t rounds;  ///< at least 1; 0 for messages
  std::uint32_t flow_count;
  std::uint32_t blocks;  ///< thread blocks of each launch of the call
  std::uint32_t root;
  std::size_t count;        ///< elements of a collective in one round; 0: as many as the pieces have
  std::size_t whole_count;  ///< if count == 0: elements of the whole call, that is, of all rounds together
  Among among;
  Collective collective;  ///< send_recv: each flow is a message
  DataType type;
  ReduceOp op;
  WireFormat wire;
  /// Whether launches wait until the call has been carried out, because it receives something or is a barrier.
  bool is_awaited;
  /// For a call with a residual (Call::residual): the number of runs of floats in the slots, one for each block that is
  /// sent, and their offset, in the slots of both directions. The runs that come back hold what the format has lost. 0:
  /// no residual.
  std::uint32_t residual_blocks, residual_offset;
};

/// Returns the number of steps of a call, over all its launches. Step k copies round k into its slot, and fetches what
/// round k - network_depth has received.
constexpr std::uint32_t steps_of(const NetworkCall& call) {
  return call.rounds + (call.is_awaited ? network_depth : 0);
}

/// The words through which a rank's device and its proxy communicate. They lie in pinned host memory, before the slots.
/// Words that the device writes and words that the host writes are on separate cache lines.
struct NetworkWords {
  struct alignas(128) Word {
    std::uint64_t value;
  };
  /// What the proxy is to do. Consecutive calls use different entries of `descriptions`.
  struct alignas(128) Description {
    NetworkCall call;
    Flow flows[max_flows];
  };
  Word posted;                      ///< by the device: calls that it has described
  Word calls_done, rounds_done;     ///< by the host: calls and rounds that it has carried out
  Word pushed[max_network_blocks];  ///< by each block of the device: rounds whose share it has put into the slots
  Word moved[max_flows];            ///< by the device: pieces of a message that it has put into the ring, or fetched
  Word ready[max_flows];  ///< by the host: pieces that it has sent, which are free again, or that have arrived
  Description descriptions[network_depth];
  constexpr Description& description_of(std::uint64_t call) { return descriptions[call % network_depth]; }
};
inline constexpr std::size_t network_words_bytes = (sizeof(NetworkWords) + 4095) / 4096 * 4096;

/// The totals of all earlier calls, in this device's memory. Initially zero.
struct NetworkCounts {
  std::uint64_t calls, rounds;
  std::uint64_t calls_done, rounds_done;  ///< by the host, as last seen by a launch
  std::uint64_t messages;                 ///< calls up to and including the last one that consisted of messages
  std::uint32_t blocks_done;              ///< blocks of this launch that have ended
  std::uint32_t gave_up;                  ///< nonzero: a launch gave up, and no later one may run
  std::uint64_t pieces[max_flows];        ///< of messages, by the index of their flow
};

/// The argument of network_exchange_kernel(), which is launched with `call.blocks` blocks of at most max_threads
/// threads.
struct NetworkExchange {
  Ring ring;  ///< a ring of one rank: its mailbox and launch counts
  NetworkWords* words;
  /// network_depth slots for data that is sent, followed by as many for received data, as addresses of the device.
  std::byte* slots;
  NetworkCounts* counts;
  std::uint32_t slot_bytes;
  std::uint32_t first_step, end_step;  ///< the steps that this launch makes, of steps_of(call); both 0 for messages
  /// Data that stays with the rank and is copied within this device's memory; local_copy_bytes == 0: none.
  std::byte* local_copy_to;
  const std::byte* local_copy_from;
  std::uint32_t local_copy_bytes;
  NetworkCall call;
  Flow flows[max_flows];
};
static_assert(sizeof(NetworkExchange) <= 4096, "arguments of kernels");
static_assert(max_flows < 256, "Flow::after");

/// Returns the offset of the slot of a round, which is counted from the communicator's beginning.
constexpr std::size_t network_slot(std::uint64_t round, bool sends, std::uint32_t slot_bytes) {
  return ((sends ? 0 : network_depth) + round % network_depth) * slot_bytes;
}
constexpr std::size_t network_slots_bytes(std::uint32_t slot_bytes) {
  return std::size_t{2} * network_depth * slot_bytes;
}
constexpr std::size_t network_bytes(std::uint32_t slot_bytes) {
  return network_words_bytes + network_slots_bytes(slot_bytes);
}

/// Returns the address of the kernel for cudaLaunchKernel; its one argument is a NetworkExchange.
const void* network_exchange_kernel();
/// Returns the kernel for sends and receives. Block b carries the flows whose index is b modulo the number of blocks,
/// at most 32.
const void* network_messages_kernel();

}  // namespace strait::kernels
