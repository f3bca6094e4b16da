#pragma once

#include "kernels/async_copy.cuh"
#include "kernels/bulk_exchange.cuh"
#include "kernels/first_push.cuh"

/// The kernel of an Exchange (launch.hpp) in bulk that consists of messages which do not depend on one another, as
/// those of a group of sends and receives: each goes on as its own peer does. A peer that makes its calls one after
/// another may take all of a message before it sends the first byte of another, or first serve a third rank.
namespace strait::kernels {

struct BulkMessagesRound : BulkExchangeRound {
  std::uint32_t failed_or_ready;  ///< something moves in this round, or nothing ever will: no more waiting
};

/// How far the thread that looks after a message has come on its lane.
struct Way {
  std::uint32_t round = 0;
  bool is_late = false;  ///< it was waited for in vain, and is no longer where others can go on

  __device__ std::uint32_t next(const Message& message, std::uint32_t lane, std::size_t& offset) const {
    return chunk_of(message, lane, round, offset);
  }
  __device__ bool is_left(const Message& message, std::uint32_t lane) const {
    std::size_t offset = 0;
    return next(message, lane, offset) != 0;
  }
};

/// How often a thread looks for what is not there yet before others go on without. A round costs some microseconds
/// besides its bytes, so that one for what is sent and what comes costs less than two; each look takes about one.
inline constexpr std::uint32_t looks_in_time = 16;

/// By each thread that looks after a peer, what it sends to it and takes from it in the coming round: of each no more
/// than a chunk, and only what can move at once. Waits until there is something in the block; false: gave up.
__device__ __forceinline__ bool prepare_messages(const Exchange& exchange, const Message& send, const Message& receive,
                                                 Lane<Bulk>& lane, const Minder& minder, Way& sent, Way& taken,
                                                 BulkMessagesRound& shared) {
  std::size_t from = 0, to = 0;
  const std::uint32_t out_bytes = sent.next(send, minder.lane, from), in_bytes = taken.next(receive, minder.lane, to);
  bool awaits_slot = out_bytes != 0, awaits_chunk = in_bytes != 0;
  Outgoing outgoing{};
  Incoming incoming{};
  Patience patience;
  for (std::uint32_t looks = 0; awaits_slot || awaits_chunk; ++looks) {
    if (awaits_slot && lane.has_slot()) {
      (void)lane.next_slot(send.data + from, out_bytes, send.call_hash, outgoing, minder.lane);
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
    if (patience.spent(exchange.ring, minder.peer, minder.lane, awaits_slot)) return false;
  }
  sent.is_late = awaits_slot;
  taken.is_late = awaits_chunk;
  sent.round += outgoing.bytes != 0 ? 1 : 0;
  taken.round += incoming.bytes != 0 ? 1 : 0;
  shared.outgoing[minder.chunk] = outgoing;
  shared.incoming[minder.chunk] = incoming;
  return true;
}

/// Likewise, of what stays on this rank.
__device__ __forceinline__ void prepare_own(const Message& send, const Message& receive, const Minder& minder,
                                            Way& taken, BulkMessagesRound& shared) {
  std::size_t offset = 0;
  const std::uint32_t bytes = taken.next(receive, minder.lane, offset);
  shared.own[minder.nth] = {send.data + offset, receive.data + offset, bytes};
  if (bytes == 0) return;
  ++taken.round;
  store_progress(shared.failed_or_ready, 1);
}

/// A template only so that a header may hold it.
template <class W = Bulk>
__global__ void __launch_bounds__(max_threads, 1) bulk_messages(const __grid_constant__ Exchange exchange) {
  fetch_arguments(exchange);
  auto& shared = shared_memory<BulkMessagesRound>();
  const Ring& ring = exchange.ring;
  const std::uint32_t peers = ring.ranks - 1, width = exchange.width, pieces = exchange.pieces;
  const Minder minder(ring, width);
  const Message send = exchange.send[minder.peer], receive = exchange.receive[minder.peer];
  Lane<Bulk> lane(ring, minder.peer, Cast::single, minder.lane);
  if (minder.has_peer && minder.nth == 0) name_first(exchange, send, minder, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  if (threadIdx.x == 0) store_progress(shared.failed_or_ready, 0);
  __syncthreads();
  const FirstPush<Bulk> first(shared.first, peers, pieces);
  const std::uint32_t before = begin_launch(ring);
  first.prefetch();
  Way sent, taken;
  taken.is_late = true;  // what has just begun has not come yet
  const auto fail = [&] {
    shared.failed = 1;
    store_progress(shared.failed_or_ready, 1);
  };
  const bool goes_on = minder.minds && lane.resume();
  mark_start(ring, before);
  if (minder.minds && !goes_on) fail();
  bool gives_up = false;
  stagger(exchange.stagger_ns);
  for (bool is_first = true, left = true; left; is_first = false) {
    const auto prepare = [&] {
      if (!minder.has_peer) return prepare_own(send, receive, minder, taken, shared);
      if (!prepare_messages(exchange, send, receive, lane, minder, sent, taken, shared)) fail();
      if (is_first) taken.is_late = false;
    };
    if (goes_on) out_of_line(prepare);
    __syncthreads();
    gives_up = shared.failed != 0;
    if (gives_up) break;
    const auto as_it_is = [](const Granule& value) { return value; };
    const auto take = [&] {
      take_all(ring, shared.own, shared.incoming, width, pieces);
      return true;
    };
    run_round(
        ring, [&] { push_all(shared.outgoing, width * peers, pieces, true, as_it_is); }, take, [] {});
    if (threadIdx.x == 0) store_progress(shared.failed_or_ready, 0);
    const bool is_left =
        minder.minds && (taken.is_left(receive, minder.lane) || (minder.has_peer && sent.is_left(send, minder.lane)));
    const Notice notice(shared.outgoing, width * peers);
    left = __syncthreads_or(is_left) != 0;
    if (minder.has_peer && left) lane.give_back();
    fence_and_publish(notice);
  }
  if (minder.has_peer) lane.save(gives_up);
  tell_finished(ring);
}

}  // namespace strait::kernels
