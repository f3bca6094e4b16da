#pragma once

#include "kernels/network.cuh"

/// The kernel of sends and receives that go through host memory (network.hpp). Each flow of a block is managed by one
/// thread of its first warp, so a block has at most 32 flows; all threads move the pieces.
namespace strait::kernels {

/// What a block moves between two looks at the host's progress: pieces [first, end) of each flow.
struct MessagesTurn {
  std::uint32_t first[warp_threads], end[warp_threads];
  bool moves;  ///< whether anything moves
  bool ends;   ///< whether nothing is left to do. If neither holds, the block gives up
};
struct MessagesMemory {
  std::uint64_t before[warp_threads];  ///< by flow of the block: pieces that earlier launches moved at the same index
  MessagesTurn turns[2];               ///< two, because one is written while slow threads still read the other
  bool is_last;
};

/// The progress of a flow, in the registers of the thread that manages it. Threads without a flow have a progress that
/// has ended.
class MessageProgress {
 public:
  __device__ MessageProgress(const NetworkExchange& exchange, std::uint32_t nth) {
    const std::uint32_t place = blockIdx.x + nth * gridDim.x;
    if (nth >= warp_threads || place >= exchange.call.flow_count) return;
    const Flow& flow = exchange.flows[place];
    ready_ = &exchange.words->ready[place].value;
    before_ = exchange.counts->pieces[place];
    total_ = pieces_of(flow);
    is_awaited_ = exchange.call.is_awaited;
    lead_ = flow.sends ? flow.depth : 0;
    allowed_ = total_;
    if (flow.after == 0) return;
    filled_ = &exchange.words->moved[flow.after - 1].value;
    filled_before_ = exchange.counts->pieces[flow.after - 1];
    allowed_ = 0;
  }
  __device__ std::uint64_t before() const { return before_; }
  /// Returns whether everything has been sent and the ring is free, or, if the call is not awaited, at least everything
  /// is in the ring; or whether everything has been received.
  __device__ bool has_ended() const { return moved_ == total_ && (seen_ == total_ || !is_awaited_); }
  /// Sets which pieces may be moved now. Reads the host's words, over PCIe, only after moving all pieces that it knows
  /// to be ready.
  __device__ __forceinline__ void next(std::uint32_t& first, std::uint32_t& end) {
    if (moved_ == may_move() && !has_ended()) {
      seen_ = static_cast<std::uint32_t>(acquire_word(ready_) - before_);
      if (filled_ != nullptr) allowed_ = static_cast<std::uint32_t>(acquire_word(filled_) - filled_before_);
    }
    first = moved_;
    end = moved_ = may_move();
  }

 private:
  __device__ std::uint32_t may_move() const {
    const std::uint32_t most = seen_ + lead_;
    return most < allowed_ ? (most < total_ ? most : total_) : (allowed_ < total_ ? allowed_ : total_);
  }
  const std::uint64_t *ready_ = nullptr, *filled_ = nullptr;
  std::uint64_t before_ = 0, filled_before_ = 0;
  std::uint32_t allowed_ = 0;  ///< with Flow::after: pieces that this flow was last seen to have filled
  std::uint32_t total_ = 0;
  std::uint32_t lead_ = 0;   ///< sends: pieces of the ring; otherwise 0
  std::uint32_t seen_ = 0;   ///< pieces of this launch that the host was last seen to have sent, or to have received
  std::uint32_t moved_ = 0;  ///< pieces of this launch that turns have moved
  bool is_awaited_ = true;
};

/// Waits until something may be moved, and sets what. Called by the first warp.
__device__ __forceinline__ void await_turn(const NetworkExchange& exchange, MessageProgress& progress,
                                           PollMonitor& monitor, MessagesTurn& turn) {
  const auto any = [](bool yes) { return __any_sync(0xffffffffu, yes ? 1 : 0) != 0; };
  const auto is_spent = [&] {  // reported as a wait for no rank in particular
    return threadIdx.x == 0 && monitor.must_give_up(exchange.ring, 0, 0, false, [] { return false; });
  };
  std::uint32_t first, end;
  bool moves, ends;
  do {
    progress.next(first, end);
    moves = any(first != end);
    ends = !moves && !any(!progress.has_ended());
  } while (!moves && !ends && !any(is_spent()));
  turn.first[threadIdx.x] = first;
  turn.end[threadIdx.x] = end;
  if (threadIdx.x != 0) return;
  turn.moves = moves;
  turn.ends = ends;
}

/// Moves a piece of a flow. Called by all threads of a block. The fence makes what is sent visible before the host
/// learns of it. What was received needs none, because it was loaded before the barrier.
__device__ __forceinline__ void move_piece(const NetworkExchange& exchange, std::uint32_t place, std::uint32_t piece,
                                           bool tells, std::uint64_t before) {
  const Flow& flow = exchange.flows[place];
  const Chunk chunk = piece_of(flow, piece);
  std::byte* const data = flow.data + chunk.offset;
  std::byte* const slot = exchange.slots + flow.slot_offset + std::size_t{piece % flow.depth} * flow.piece_bytes;
  CopyDealer dealer((chunk.bytes + piece_bytes - 1) / piece_bytes);
  copy_by_block(dealer, flow.sends ? slot : data, flow.sends ? data : slot, chunk.bytes);
  __syncthreads();
  if (!tells) return;
  if (flow.sends) __threadfence_system();
  store_word(&exchange.words->moved[place].value, before + piece + 1);
}

/// Moves one piece of each flow, and repeats that, so that no flow waits for the whole of another one. Called by all
/// threads of a block. Threads of the last warp tell the host, one for each flow, while the others copy and the first
/// warp looks.
__device__ __forceinline__ void move_turn(const NetworkExchange& exchange, const MessagesMemory& shared,
                                          const MessagesTurn& turn) {
  bool moves = true;
  for (std::uint32_t nth = 0; moves; ++nth) {
    moves = false;
    for (std::uint32_t i = 0, place = blockIdx.x; place < exchange.call.flow_count; ++i, place += gridDim.x) {
      const std::uint32_t piece = turn.first[i] + nth;
      if (piece >= turn.end[i]) continue;
      moves = true;
      move_piece(exchange, place, piece, threadIdx.x == blockDim.x - 1 - i, shared.before[i]);
    }
  }
}

/// Waits until all earlier calls have been carried out, because this call's rings use the memory of their slots. Called
/// by one thread. Returns false if this launch or an earlier one gives up.
__device__ __forceinline__ bool may_begin(const NetworkExchange& exchange) {
  NetworkCounts& counts = *exchange.counts;
  if (acquire_count(&counts.gave_up) != 0) return false;
  const std::uint64_t calls = load_word(&counts.calls);
  std::uint64_t seen = load_word(&counts.calls_done);
  if (await_proxy(exchange, exchange.words->calls_done, calls, seen)) return true;
  store_count(&counts.gave_up, 1);
  return false;
}

/// Counts the end of a block that has not given up; the last block stores what later launches begin with. Called by all
/// threads of the block. If another block gave up, no block counts as the last.
__device__ __forceinline__ void end_messages(const NetworkExchange& exchange, MessagesMemory& shared) {
  NetworkCounts& counts = *exchange.counts;
  if (threadIdx.x == 0) shared.is_last = count_up(&counts.blocks_done) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last) return;
  for (std::uint32_t i = threadIdx.x; i < exchange.call.flow_count; i += blockDim.x)
    counts.pieces[i] += pieces_of(exchange.flows[i]);
  if (threadIdx.x != 0) return;
  counts.blocks_done = 0;
  counts.calls_done = counts.calls + (exchange.call.is_awaited ? 1 : 0);  // earlier calls are done: this one began
  counts.messages = ++counts.calls;
}

/// A template only so that a header may define it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) network_messages(const __grid_constant__ NetworkExchange exchange) {
  fetch_arguments(exchange);
  auto& shared = shared_memory<MessagesMemory>();
  const Ring& ring = exchange.ring;
  mark_start(ring, begin_launch(ring));
  if (__syncthreads_or(threadIdx.x == 0 && !may_begin(exchange) ? 1 : 0) != 0) return count_finished_block(ring);
  MessageProgress progress(exchange, threadIdx.x);
  if (threadIdx.x < warp_threads) shared.before[threadIdx.x] = progress.before();
  if (blockIdx.x == 0) {
    describe(exchange);
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) tell_proxy(exchange.words->posted, exchange.counts->calls + 1);
  }
  PollMonitor monitor;
  const MessagesTurn* turn;
  for (std::uint32_t number = 0;; ++number) {
    turn = &shared.turns[number % 2];
    if (threadIdx.x < warp_threads) await_turn(exchange, progress, monitor, shared.turns[number % 2]);
    __syncthreads();
    if (!turn->moves) break;
    move_turn(exchange, shared, *turn);
  }
  if (turn->ends)
    end_messages(exchange, shared);
  else if (threadIdx.x == 0)
    store_count(&exchange.counts->gave_up, 1);
  count_finished_block(ring);
}

}  // namespace strait::kernels
