#pragma once

#include "kernels/async_copy.cuh"
#include "kernels/first_push.cuh"
#include "kernels/offered_messages.cuh"

/// The kernel of an Exchange (launch.hpp) in bulk whose messages do not depend on one another, as those of a group of
/// sends and receives: each message progresses as its own peer does. A peer that makes its calls one after another may
/// receive all of a message before it sends the first byte of another one, or serve a third rank first.
namespace strait::kernels {

template <class Messages>
__device__ __forceinline__ void run_messages(const Messages& exchange) {
  constexpr bool are_offered = std::is_same_v<Messages, OfferedMessages>;
  fetch_arguments(exchange);
  using Round = std::conditional_t<are_offered, OfferedMessagesRound, BulkMessagesRound>;
  auto& shared = shared_memory<Round>();
  const Ring& ring = exchange.ring;
  const std::uint32_t peers = ring.ranks - 1, width = exchange.width, pieces = exchange.pieces;
  const LaneManager manager(ring, width);
  const Message send = exchange.send[manager.peer], receive = exchange.receive[manager.peer];
  Lane<Bulk> lane(ring, manager.peer, Cast::single, manager.lane);
  if (manager.has_peer && manager.nth == 0) name_first(exchange, send, manager, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  if (threadIdx.x == 0) store_progress(shared.failed_or_ready, 0);
  __syncthreads();
  const FirstPush<Bulk> first(shared.first, peers, pieces);
  const std::uint32_t before = begin_launch(ring);
  first.prefetch();
  std::conditional_t<are_offered, OfferedMessageProgress, BulkMessageProgress> sent, taken;
  taken.is_late = true;  // what has just begun cannot have arrived yet
  const auto fail = [&] {
    shared.failed = 1;
    store_progress(shared.failed_or_ready, 1);
  };
  const bool goes_on = manager.manages && lane.resume();
  if constexpr (are_offered) {
    sent.first_slot = lane.sent();
    sent.may_be_offered = manager.has_peer && send.bytes >= exchange.least_bytes;
    taken.first_slot = lane.taken();
    if (manager.has_peer && receive.bytes >= exchange.least_bytes) taken.offer = exchange.offers[manager.peer];
    if (goes_on && taken.offer != 0 && taken.is_left(receive, manager.lane))
      Offers(ring, manager.peer, manager.lane).make(taken.first_slot, taken.offer, receive.bytes);
  }
  mark_start(ring, before);
  if (manager.manages && !goes_on) fail();
  bool gives_up = false;
  stagger(exchange.stagger_ns);
  for (bool is_first = true, left = true; left; is_first = false) {
    const auto prepare = [&] {
      if (!manager.has_peer) return prepare_own(send, receive, manager, taken, shared);
      const auto prepare_next = [&] {
        if constexpr (are_offered)
          return NextMessages(exchange, send, receive, lane, manager, sent, taken).await(shared);
        else
          return prepare_messages(exchange, send, receive, lane, manager, sent, taken, shared);
      };
      if (!prepare_next()) fail();
      if (is_first) taken.is_late = false;
    };
    if (goes_on) out_of_line(prepare);
    __syncthreads();
    gives_up = shared.failed != 0;
    if (gives_up) break;
    const auto take = [&] {
      take_all(ring, shared.own, shared.incoming, width, pieces);
      return true;
    };
    const auto send_chunks = [&] {
      push_all(shared.outgoing, width * peers, pieces);
      if constexpr (are_offered) push_rows(shared, width * peers, pieces);
    };
    run_round(ring, send_chunks, take, [] {});
    if (threadIdx.x == 0) store_progress(shared.failed_or_ready, 0);
    const bool is_left = manager.manages && (taken.is_left(receive, manager.lane) ||
                                             (manager.has_peer && sent.is_left(send, manager.lane)));
    const Notice notice(shared.outgoing, width * peers);
    left = __syncthreads_or(is_left) != 0;
    if (manager.has_peer && left) lane.give_back();
    fence_and_publish(notice);
  }
  if (manager.has_peer) lane.save(gives_up);
  count_finished_block(ring);
}

/// Templates only so that a header may define them.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) bulk_messages(const __grid_constant__ Exchange exchange) {
  run_messages(exchange);
}
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) offered_messages(const __grid_constant__ OfferedMessages messages) {
  run_messages(messages);
}

}  // namespace strait::kernels
