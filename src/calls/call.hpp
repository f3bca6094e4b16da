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
  float* residual = nullptr;  ///< one float an element of the send buffer, or none (a wire format's error feedback)
  /// GPU ranks: thread blocks at most, up to most_sms; no_sms: copy engines; 0: as the communicator says.
  std::uint32_t max_sms = 0;
  const Algorithm* algorithm = nullptr;  ///< of the call's options, one of the catalogue; null: chosen
  /// GPU ranks, of a step of DeviceIslands: kernels carry it, through slots, for only some ranks' outputs are the
  /// user's.
  bool by_slots = false;
  bool aggregated = false;  ///< GPU ranks: goes along with the call before it in its group (device/aggregates.hpp)

  bool sends = false;      ///< send_recv: this is a send
  std::uint32_t peer = 0;  ///< send_recv
  /// Of a stripe of a message, or a round of a call: elements of the whole, which is what ranks compare; 0: it is
  /// whole.
  std::size_t whole_count = 0;

  std::vector<std::size_t> send_counts, send_offsets;        ///< all_to_all_v: elements, by rank
  std::vector<std::size_t> receive_counts, receive_offsets;  ///< likewise
  // Steps of DeviceIslands have them too: offsets where the blocks that are sent to, or received from, all ranks do not
  // lie one after the other; and counts, of an all_to_all by rank and else the same on all, where they are not alike:
  // then `count` is the most.
};

/// Where a call's buffers lie, in bytes; 0 where this rank has none.
struct BufferSizes {
  std::size_t send_bytes = 0;
  std::size_t receive_bytes = 0;
  std::size_t larger_bytes() const { return std::max(send_bytes, receive_bytes); }
};
BufferSizes buffer_sizes(const Call& call, std::uint32_t rank, std::uint32_t ranks);

/// Whether this rank made the call in its in-place form.
bool is_in_place(const Call& call, std::uint32_t rank);

/// What all ranks must agree on, packed: collective, type, op, registered, wire format, thread blocks, algorithm, root,
/// aggregated; and the count.
CallSignature signature(const Call& call);
/// The signature of one message of a call whose counts differ by peer (send_recv, all_to_all_v).
CallSignature message_signature(const Call& call, std::size_t count);
/// The signature of a collective as posted and as put on its slots: with its sequence number modulo 4096. Without it, a
/// rank that left out a call of which another rank only needs the data (a broadcast) would take the data of that call
/// for those of its next like one. Sends and receives have no number: between two ranks they pair up in order.
CallSignature numbered(CallSignature signature, std::uint64_t sequence);
std::uint64_t number_of(const CallSignature& signature);
/// Whether two calls are alike but for the groups that they were made in.
bool differ_in_grouping(const CallSignature& a, const CallSignature& b);
/// The signature of a collective as posted by a GPU rank that has captured others. Those run whenever their graph does
/// and are not posted, though another rank may make the same calls eagerly and post them: from then on that this rank's
/// number is another one's too does not say that they are the same call.
CallSignature after_capture(CallSignature signature);
bool is_after_capture(const CallSignature& signature);
/// Of 32 bits, where a signature has no room.
std::uint32_t hash_of(const CallSignature& signature);
/// Of 16, as the flag of a slot has room for.
std::uint16_t short_hash_of(const CallSignature& signature);
Collective collective_of(const CallSignature& signature);
/// "all-reduce(count 1024, float32, sum, int8 on the wire)".
std::string describe(const CallSignature& signature);

/// Whether anything of the call travels in a wire format: where there is no other rank, nothing does.
bool is_encoded(const Call& call, std::uint32_t ranks);
/// Why a call cannot have a wire format; "" if it can.
std::string wire_problem(const Call& call);

/// Everything about the call that can be judged on this rank alone. The error names the argument.
Status validate(const Call& call, std::uint32_t rank, std::uint32_t ranks);
/// Of the messages of a group, those of this rank to itself must pair up: no other rank can complete them.
Status check_own_messages(std::span<const Call> messages, std::uint32_t rank);
/// What one of them receives must not lie where another one sends from or receives: they take place side by side. But
/// what `rank`, whose messages they are, sends to itself may stay where it is.
Status check_places(std::span<const Call> messages, std::uint32_t rank);

}  // namespace strait
