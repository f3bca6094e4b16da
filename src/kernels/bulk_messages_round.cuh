#pragma once

#include "kernels/bulk_exchange.cuh"

/// A round of messages in bulk that do not depend on one another (bulk_messages.cuh).
namespace strait::kernels {

struct BulkMessagesRound : BulkExchangeRound {
  /// Something moves in this round, or nothing ever will (a thread has failed): the other threads stop waiting.
  std::uint32_t failed_or_ready;
};

/// How far a message has come on a lane, as its thread knows.
struct BulkMessageProgress {
  std::uint32_t round = 0;
  /// The message was waited for in vain, and is no longer waited for if other messages can move.
  bool is_late = false;

  __device__ std::uint32_t next(const Message& message, std::uint32_t lane, std::size_t& offset) const {
    return chunk_of(message, lane, round, offset);
  }
  __device__ bool is_left(const Message& message, std::uint32_t lane) const {
    std::size_t offset = 0;
    return next(message, lane, offset) != 0;
  }
};

/// How often a thread looks for data that has not arrived before the block proceeds without it. A round costs some
/// microseconds besides its bytes, so one round that both sends and receives costs less than two; each look takes about
/// one microsecond.
inline constexpr std::uint32_t looks_in_time = 16;

/// Sets what the coming round sends to a peer and receives from it: at most one chunk each, and only what can move at
/// once. Called by each thread that manages a peer. Waits until the block has something to move. Returns false if the
/// thread gave up.
__device__ __forceinline__ bool prepare_messages(const Exchange& exchange, const Message& send, const Message& receive,
                                                 Lane<Bulk>& lane, const LaneManager& manager,
                                                 BulkMessageProgress& sent, BulkMessageProgress& taken,
                                                 BulkMessagesRound& shared) {
  std::size_t from = 0, to = 0;
  const std::uint32_t out_bytes = sent.next(send, manager.lane, from), in_bytes = taken.next(receive, manager.lane, to);
  bool awaits_slot = out_bytes != 0, awaits_chunk = in_bytes != 0;
  Outgoing outgoing{};
  Incoming incoming{};
  PollMonitor monitor;
  for (std::uint32_t looks = 0; awaits_slot || awaits_chunk; ++looks) {
    if (awaits_slot && lane.has_slot()) {
      (void)lane.next_slot(send.data + from, out_bytes, send.call_hash, outgoing, manager.lane);
      awaits_slot = false;
      store_progress(shared.failed_or_ready, 1);
    }
    if (awaits_chunk && lane.has_come(receive.call_hash)) {
      lane.expect(receive.data + to, in_bytes, receive.call_hash, incoming);
      awaits_chunk = false;
      store_progress(shared.failed_or_ready, 1);
    }
    const bool in_time = looks < looks_in_time && ((awaits_slot && !sent.is_late) || (awaits_chunk && !taken.is_late));
    if (!in_time && load_progress(shared.failed_or_ready) != 0) break;
    if (monitor.must_give_up(exchange.ring, manager.peer, manager.lane, awaits_slot)) return false;
  }
  sent.is_late = awaits_slot;
  taken.is_late = awaits_chunk;
  sent.round += outgoing.bytes != 0 ? 1 : 0;
  taken.round += incoming.bytes != 0 ? 1 : 0;
  shared.outgoing[manager.chunk] = outgoing;
  shared.incoming[manager.chunk] = incoming;
  return true;
}

/// Does the same for what stays on this rank.
__device__ __forceinline__ void prepare_own(const Message& send, const Message& receive, const LaneManager& manager,
                                            BulkMessageProgress& taken, BulkMessagesRound& shared) {
  std::size_t offset = 0;
  const std::uint32_t bytes = taken.next(receive, manager.lane, offset);
  shared.own[manager.nth] = {send.data + offset, receive.data + offset, bytes};
  if (bytes == 0) return;
  ++taken.round;
  store_progress(shared.failed_or_ready, 1);
}

}  // namespace strait::kernels
