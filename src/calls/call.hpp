#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "transport/link.hpp"

namespace strait {

struct Algorithm;

/// One API call, as its rank made it.
struct Call {
  Collective collective = Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  std::size_t count = 0;  ///< elements, as the API counts for this collective
  const void* send = nullptr;
  void* receive = nullptr;
  void* stream = nullptr;      ///< GPU ranks: a cudaStream_t
  PremulScalar premul_scalar;  ///< this rank's own (ReduceOp::premul_sum)
  bool registered = false;     ///< both buffers lie in memory that all ranks registered
  WireFormat wire = WireFormat::off;
  float* residual = nullptr;  ///< one float per element of the send buffer, or null (error feedback)
  /// GPU ranks: most thread blocks, up to most_sms; no_sms: copy engines; 0: the communicator's setting.
  std::uint32_t max_sms = 0;
  const Algorithm* algorithm = nullptr;  ///< from the call's options, one of the catalogue; null: chosen
  /// GPU ranks, for a step of DeviceIslands: kernels must carry it through slots, because only some ranks' outputs are
  /// user memory.
  bool by_slots = false;
  bool aggregated = false;  ///< GPU ranks: shares a launch with the call before it (launches/device_aggregates.hpp)

  bool sends = false;      ///< send_recv: this is a send
  std::uint32_t peer = 0;  ///< send_recv: the other rank
  /// For a stripe of a message, or a round of a call: the elements of the whole, which is what ranks compare. 0: this
  /// is the whole.
  std::size_t whole_count = 0;

  std::vector<std::size_t> send_counts, send_offsets;        ///< all_to_all_v: elements, by rank
  std::vector<std::size_t> receive_counts, receive_offsets;  ///< all_to_all_v: elements, by rank
  // Steps of DeviceIslands have them, too: offsets, if the blocks that are sent to all ranks, or received from them, do
  // not lie one after the other; and counts, if blocks differ in length. Counts of an all_to_all are by rank, those of
  // other collectives the same on all ranks; `count` is then the largest of them (has_own_layout()).
};

/// Returns whether the call is a step of DeviceIslands whose blocks differ in length or do not lie one after the other.
/// Only kernels can carry such a step.
bool has_own_layout(const Call& call);

/// The sizes of a call's buffers, in bytes; 0 if this rank has none.
struct BufferSizes {
  std::size_t send_bytes = 0;
  std::size_t receive_bytes = 0;
  std::size_t larger_bytes() const { return std::max(send_bytes, receive_bytes); }
};
BufferSizes buffer_sizes(const Call& call, std::uint32_t rank, std::uint32_t ranks);

/// Returns whether this rank made the call in its in-place form.
bool is_in_place(const Call& call, std::uint32_t rank);

/// Returns what all ranks must agree on, packed: collective, type, op, registered, wire format, thread blocks,
/// algorithm, root, aggregated; and the count.
CallSignature signature(const Call& call);
/// Returns the signature of one message of a call whose counts differ by peer (send_recv, all_to_all_v).
CallSignature message_signature(const Call& call, std::size_t count);
/// Returns the signature of a collective as it is posted and put on its slots: with its sequence number modulo 4096.
/// Without the number, a rank that leaves out a call in which others only send to it (a broadcast) would take the data
/// of that call for those of its next call of the same kind. Sends and receives have no number: between two ranks they
/// pair up in order.
CallSignature numbered(CallSignature signature, std::uint64_t sequence);
std::uint64_t number_of(const CallSignature& signature);
/// Returns whether two calls differ only in the groups in which they were made.
bool differ_in_grouping(const CallSignature& a, const CallSignature& b);
/// Returns whether two signatures are of the same call, one of messages, and differ in what a send and its receive have
/// in common.
bool differ_as_messages(const CallSignature& a, const CallSignature& b);
/// Returns the signature of a collective as posted by a GPU rank that has captured others. Captured collectives run
/// whenever their graph does, and are not posted, whereas another rank may make the same calls eagerly and post them.
/// From then on, equal numbers on two ranks no longer mean that the calls are the same.
CallSignature after_capture(CallSignature signature);
bool is_after_capture(const CallSignature& signature);
/// Returns a hash of 32 bits, for places where a signature has no room.
std::uint32_t hash_of(const CallSignature& signature);
/// Returns the mark that the first launch of a GPU rank's call writes (kernels::Ring::call): a hash that is not 0.
std::uint32_t mark_of(const CallSignature& signature);
/// Returns a hash of 16 bits, for which the flag of a slot has room.
std::uint16_t short_hash_of(const CallSignature& signature);
Collective collective_of(const CallSignature& signature);
/// Returns text such as "all-reduce(count 1024, float32, sum, int8 on the wire)".
std::string describe(const CallSignature& signature);

/// Returns whether anything of the call travels in a wire format; nothing does if there is no other rank.
bool is_encoded(const Call& call, std::uint32_t ranks);
/// Returns why a call cannot have a wire format; "" if it can.
std::string wire_problem(const Call& call);

/// Checks everything about the call that can be judged on this rank alone. The error names the argument.
Status validate(const Call& call, std::uint32_t rank, std::uint32_t ranks);
/// Checks that those messages of a group that this rank sends to itself pair up: no other rank can complete them.
Status check_own_messages(std::span<const Call> messages, std::uint32_t rank);
/// Checks that no message of a group receives into memory from which another one sends, or into which another one
/// receives, because they run side by side. `rank`: whose messages they are. What it sends to itself may have the same
/// place at both ends.
Status check_no_overlap(std::span<const Call> messages, std::uint32_t rank);

}  // namespace strait
