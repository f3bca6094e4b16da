#pragma once

#include "kernels/network.cuh"

/// The kernel of sends and receives that go through the host's memory (network.hpp). A thread of a block's first warp
/// looks after each flow, of which no block has more; all threads move its pieces.
namespace strait::kernels {

/// What a block moves between two looks at what the host has done: of each flow the pieces [first, end).
struct MessagesTurn {
  std::uint32_t first[warp_threads], end[warp_threads];
  bool moves;  ///< anything
  bool ends;   ///< nothing is left to do. Neither: the block gives up
};
struct MessagesMemory {
  std::uint64_t before[warp_threads];  ///< by flow of the block: pieces of earlier launches at its place
  MessagesTurn turns[2];               ///< the next one is written while slow threads still read this one
  bool is_last;
};

/// How far a flow is, in the registers of the thread that looks after it. Another thread has one that has ended.
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
  /// All is sent, and the ring free for what comes next, or at least in the ring; or all is taken.
  __device__ bool has_ended() const { return moved_ == total_ && (seen_ == total_ || !is_awaited_); }
  /// Which pieces may be moved now. Asks the host, over PCIe, when it has moved all those that it knows of.
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
  std::uint32_t allowed_ = 0;  ///< of Flow::after: pieces that it was last seen to have filled
  std::uint32_t total_ = 0;
  std::uint32_t lead_ = 0;   ///< of what is sent: pieces of the ring
  std::uint32_t seen_ = 0;   ///< of this launch: pieces that the host was last seen to have sent, or to have got
  std::uint32_t moved_ = 0;  ///< likewise: that a turn has moved
  bool is_awaited_ = true;
};

/// By the first warp: waits until anything may be moved, and says what.
__device__ __forceinline__ void await_turn(const NetworkExchange& exchange, MessageProgress& progress,
                                           Patience& patience, MessagesTurn& turn) {
  const auto any = [](bool yes) { return __any_sync(0xffffffffu, yes ? 1 : 0) != 0; };
  const auto is_spent = [&] {  // for nobody in particular
    return threadIdx.x == 0 && patience.spent(exchange.ring, 0, 0, false, [] { return false; });
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

/// By all threads of a block: a piece of a flow. What the host is to send must be there before it hears of that; what
/// came was loaded before the barrier.
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

/// By all threads of a block: of each flow a piece, and again, so that none waits for the whole of another. Threads of
/// the last warp tell the host, one for each flow: the others copy meanwhile, and the first warp asks.
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

/// By one thread: waits for all calls before, whose slots are where this one's rings are. False: this launch, or one
/// before it, gives up.
__device__ __forceinline__ bool may_begin(const NetworkExchange& exchange) {
  NetworkCounts& counts = *exchange.counts;
  if (acquire_count(&counts.gave_up) != 0) return false;
  const std::uint64_t calls = load_word(&counts.calls);
  std::uint64_t seen = load_word(&counts.calls_done);
  if (await_proxy(exchange, exchange.words->calls_done, calls, seen)) return true;
  store_count(&counts.gave_up, 1);
  return false;
}

/// By all threads of a block that has not given up: the last one says what later launches begin with. None is the last
/// where another gave up.
__device__ __forceinline__ void end_messages(const NetworkExchange& exchange, MessagesMemory& shared) {
  NetworkCounts& counts = *exchange.counts;
  if (threadIdx.x == 0) shared.is_last = count_up(&counts.through) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last) return;
  for (std::uint32_t i = threadIdx.x; i < exchange.call.flow_count; i += blockDim.x)
    counts.pieces[i] += pieces_of(exchange.flows[i]);
  if (threadIdx.x != 0) return;
  counts.through = 0;
  counts.calls_done = counts.calls + (exchange.call.is_awaited ? 1 : 0);  // those before have been: it began
  counts.messages = ++counts.calls;
}

/// A template only so that a header may hold it.
template <class P = Bulk>
__global__ void __launch_bounds__(max_threads, 1) network_messages(const __grid_constant__ NetworkExchange exchange) {
  fetch_arguments(exchange);
  auto& shared = shared_memory<MessagesMemory>();
  const Ring& ring = exchange.ring;
  mark_start(ring, begin_launch(ring));
  if (__syncthreads_or(threadIdx.x == 0 && !may_begin(exchange) ? 1 : 0) != 0) return tell_finished(ring);
  MessageProgress progress(exchange, threadIdx.x);
  if (threadIdx.x < warp_threads) shared.before[threadIdx.x] = progress.before();
  if (blockIdx.x == 0) {
    describe(exchange);
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) tell_proxy(exchange.words->posted, exchange.counts->calls + 1);
  }
  Patience patience;
  const MessagesTurn* turn;
  for (std::uint32_t number = 0;; ++number) {
    turn = &shared.turns[number % 2];
    if (threadIdx.x < warp_threads) await_turn(exchange, progress, patience, shared.turns[number % 2]);
    __syncthreads();
    if (!turn->moves) break;
    move_turn(exchange, shared, *turn);
  }
  if (turn->ends)
    end_messages(exchange, shared);
  else if (threadIdx.x == 0)
    store_count(&exchange.counts->gave_up, 1);
  tell_finished(ring);
}

}  // namespace strait::kernels
