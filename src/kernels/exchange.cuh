#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/granules.cuh"
#include "kernels/lane.cuh"

/// The kernels of Exchange (launch.hpp): one hop, as a copy and as a reduction.
namespace strait::kernels {

/// Of the chunks of a message, lane l takes l, l + lanes, l + 2 lanes...: the length of the one of its round number
/// `round`, and where it lies.
__device__ __forceinline__ std::uint32_t chunk_of(const Message& message, std::uint32_t lane, std::uint32_t round,
                                                  std::size_t& offset) {
  offset = (std::size_t{round} * message.lanes + lane) * message.chunk_bytes;
  if (lane >= message.lanes || offset >= message.bytes) return 0;
  const std::size_t left = message.bytes - offset;
  return left < message.chunk_bytes ? static_cast<std::uint32_t>(left) : message.chunk_bytes;
}

/// What the threads of a block share in a round of an exchange: for each of its lanes, chunks by the position of their
/// peer (position_of).
template <class W>
struct ExchangeRound {
  Outgoing outgoing[W::max_width * max_ranks];
  Incoming incoming[W::max_width * max_ranks];
  Own own[W::max_width];
  int failed;
  Outgoing first[max_ranks];  ///< what the first round sends: where from, and how much
};

/// By the thread that looks after a peer on the block's first lane: what its first chunk is.
template <class W>
__device__ __forceinline__ void name_first(const Message& send, std::uint32_t position, ExchangeRound<W>& shared) {
  std::size_t offset = 0;
  shared.first[position].bytes = chunk_of(send, blockIdx.x, 0, offset);
  shared.first[position].source = send.data + offset;
}

/// Fetches what this thread will send first, while those who look after peers find slots for it.
template <class W>
__device__ __forceinline__ void prefetch_first(const ExchangeRound<W>& shared, std::uint32_t count,
                                               std::uint32_t pieces) {
  const std::uint32_t number = threadIdx.x / warp_threads;
  if (count == 0 || number >= count * pieces) return;
  const Task task = task_of<W>(number, shared.first, count);
  if (task.place.valid != 0) prefetch(shared.first[task.chunk].source + task.place.offset);
}

/// By the thread that looks after a peer: what this round sends it.
template <class W>
__device__ __forceinline__ void prepare_send(const Exchange& exchange, const Message& send, Lane<W>& lane,
                                             const Minder<W>& minder, std::uint32_t round, ExchangeRound<W>& shared) {
  if (!minder.has_peer) return;
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(send, minder.lane, round, offset);
  Outgoing outgoing;
  if (!lane.next_slot(send.data + offset, bytes, send.call_hash, outgoing)) shared.failed = 1;
  if (exchange.cast == Cast::single) {
    shared.outgoing[minder.nth * (exchange.ring.ranks - 1) + minder.position] = outgoing;
  } else if (minder.position == 0) {
    shared.outgoing[minder.nth] = outgoing;
  }
}

/// Likewise, what comes from it, or of this rank's own.
template <class W>
__device__ __forceinline__ void prepare_receive(const Ring& ring, const Message& send, const Message& receive,
                                                Lane<W>& lane, const Minder<W>& minder, std::uint32_t round,
                                                ExchangeRound<W>& shared) {
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(receive, minder.lane, round, offset);
  if (!minder.has_peer) {
    shared.own[minder.nth] = {send.data + offset, receive.data + offset, bytes};
  } else {
    lane.expect(receive.data + offset, bytes, receive.call_hash,
                shared.incoming[minder.nth * (ring.ranks - 1) + minder.position]);
  }
}

/// Before any thread takes what comes in the first round of a wire that flags slots.
template <class W>
__device__ __forceinline__ void receive_nothing(const Ring& ring, const Minder<W>& minder, ExchangeRound<W>& shared) {
  if (!minder.has_peer) {
    shared.own[minder.nth].bytes = 0;
  } else {
    shared.incoming[minder.nth * (ring.ranks - 1) + minder.position].bytes = 0;
  }
}

/// `combine()` takes what comes; false: gave up. What is sent is a round ahead of what is taken where slots are
/// flagged, so that a block's reads do not wait for its writes to get through. `as_it_is`: the contribution is the
/// input.
template <class W, class Contribution, class Combine>
__device__ __forceinline__ void run_exchange(const Exchange& exchange, ExchangeRound<W>& shared, bool as_it_is,
                                             Contribution&& contribution, Combine&& combine) {
  const Ring& ring = exchange.ring;
  const Minder<W> minder(ring, exchange.width);
  const std::uint32_t copies = exchange.cast == Cast::multi ? 1 : ring.ranks - 1;
  const std::uint32_t width = W::max_width > 1 ? exchange.width : 1;
  constexpr std::uint32_t lead = W::flags_slots ? 1 : 0;
  // What the arguments alone decide comes before the wait, while the launch before this one still runs.
  const Message send = exchange.send[minder.peer], receive = exchange.receive[minder.peer];
  Lane<W> lane(ring, minder.peer, exchange.cast, minder.lane);
  if (minder.has_peer && minder.nth == 0) name_first(send, minder.position, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  after_predecessor();
  const bool goes_on = minder.minds && lane.resume();
  if (minder.minds && !goes_on) shared.failed = 1;
  bool gives_up = false;
  prefetch_first(shared, copies, exchange.pieces);
  for (std::uint32_t round = 0; round < exchange.rounds + lead; ++round) {
    const auto prepare = [&] {
      prepare_send(exchange, send, lane, minder, round, shared);
      if (lead != 0 && round == 0) {
        receive_nothing(ring, minder, shared);
      } else {
        prepare_receive(ring, send, receive, lane, minder, round - lead, shared);
      }
      if constexpr (W::flags_slots) {
        const Incoming& incoming = shared.incoming[minder.nth * (ring.ranks - 1) + minder.position];
        if (minder.has_peer && !await(ring, incoming, minder.lane)) shared.failed = 1;
      }
    };
    if (goes_on) perhaps_out_of_line<W>(prepare);
    const bool has_stale = meet<W>(goes_on && lane.takes_stale_slots());
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.outgoing, copies);
      __syncthreads();
    }
    push_all<W>(shared.outgoing, copies * width, exchange.pieces, as_it_is, contribution);
    // In place, what comes overwrites what was sent: of this round, or where sending leads, of the one before.
    if constexpr (!W::flags_slots) __syncthreads();
    const bool done = combine();
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!minder.has_peer || round + 1 == exchange.rounds + lead) continue;
    if constexpr (W::flags_slots) {
      __threadfence_system();
      if (minder.position < copies) publish(shared.outgoing[minder.nth * copies + minder.position]);
    }
    lane.give_back();
  }
  if (minder.has_peer) lane.save(gives_up);
}

/// Copies the part of one of the block's lanes that does not leave this rank.
template <class W>
__device__ __forceinline__ void copy_own(const Own& own, std::uint32_t pieces) {
  if (own.bytes == 0 || own.output == own.input) return;
  for_tasks<batch_size>(pieces, [&](const std::uint32_t(&numbers)[batch_size]) {
    Granule values[batch_size];
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      const Place place = W::place_of(numbers[b], own.bytes);
      values[b] = UserBytes<W::stride>(own.input).load(place.offset, place.valid);
    }
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      const Place place = W::place_of(numbers[b], own.bytes);
      UserBytes<W::stride>(own.output).store(place.offset, place.valid, values[b]);
    }
    return true;
  });
}

/// The parts of all of the block's lanes.
template <class W>
__device__ __forceinline__ void copy_all_own(const ExchangeRound<W>& shared, std::uint32_t width,
                                             std::uint32_t pieces) {
  if constexpr (W::max_width == 1) return copy_own<W>(shared.own[0], pieces);
  CopyDealer dealer(width * pieces);
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    const Own& own = shared.own[nth];
    if (!own.are_granules())
      out_of_line([own, pieces] { copy_own<W>(own, pieces); });
    else if (own.output != own.input)
      copy_granules(dealer, own.output, own.input, own.bytes);
  }
}

inline constexpr int peers_at_once = 4;  ///< whose granules a thread has in flight together, for W::reduce_batch places

/// Adds the granules of all contributors to some places, in rank order. `chunks` by position; this rank's own
/// contributions are `mine`. False: gave up.
template <class W, class R>
__device__ __forceinline__ bool reduce_places(const Ring& ring, const Incoming* chunks, std::uint32_t contributors,
                                              const Place (&places)[W::reduce_batch],
                                              const Granule (&mine)[W::reduce_batch], const Operation& operation,
                                              R (&reductions)[W::reduce_batch]) {
  bool is_first = true;
  for (std::uint32_t first = 0; first < ring.ranks; first += peers_at_once) {
    Granule values[peers_at_once * W::reduce_batch];
    Awaited awaited[peers_at_once * W::reduce_batch];
    clear<W>(values);
#pragma unroll
    for (std::uint32_t i = 0; i < peers_at_once; ++i) {
      const std::uint32_t peer = first + i;
      const bool reads = peer < ring.ranks && peer != ring.rank && (contributors >> peer & 1) != 0;
      const Incoming& chunk = chunks[reads ? position_of(peer, ring.rank, ring.ranks) : 0];
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b)
        awaited[i * W::reduce_batch + b] = {reads && places[b].active ? chunk.slot + places[b].slot_offset : nullptr,
                                            chunk.flag, peer};
    }
    if (!receive<W>(ring, awaited, values)) return false;
#pragma unroll
    for (std::uint32_t i = 0; i < peers_at_once; ++i) {
      const std::uint32_t peer = first + i;
      if (peer >= ring.ranks || (contributors >> peer & 1) == 0) continue;
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b) {
        const Granule& value = peer == ring.rank ? mine[b] : values[i * W::reduce_batch + b];
        if (is_first) {
          reductions[b].first(value);
        } else {
          reductions[b].next(value, operation);
        }
      }
      is_first = false;
    }
  }
  return true;
}

/// Reduces the chunk of one of the block's lanes. False: gave up.
template <class W, DataType type, bool sum_only, class Contribution>
__device__ __forceinline__ bool reduce_exchanged(const Exchange& exchange, const Own& own, const Incoming* incoming,
                                                 const Operation& operation, Contribution&& contribute) {
  return for_tasks<W::reduce_batch>(exchange.pieces, [&](const std::uint32_t(&numbers)[W::reduce_batch]) {
    Place places[W::reduce_batch];
    Granule mine[W::reduce_batch];
    Reduction<type, sum_only, Granule> reductions[W::reduce_batch];
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b) {
      places[b] = W::place_of(numbers[b], own.bytes);
      mine[b] = contribute(UserBytes<W::stride>(own.input).load(places[b].offset, places[b].valid));
    }
    if (!reduce_places<W>(exchange.ring, incoming, ~0u, places, mine, operation, reductions)) return false;
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b)
      UserBytes<W::stride>(own.output).store(places[b].offset, places[b].valid, reductions[b].result(operation));
    return true;
  });
}

template <class W>
__global__ void __launch_bounds__(max_threads, 1) exchange_copy(const __grid_constant__ Exchange exchange) {
  auto& shared = shared_memory<ExchangeRound<W>>();
  const auto as_it_is = [](const Granule& value) { return value; };
  const std::uint32_t peers = exchange.ring.ranks - 1, width = W::max_width > 1 ? exchange.width : 1;
  run_exchange<W>(exchange, shared, true, as_it_is, [&] {
    copy_all_own(shared, width, exchange.pieces);
    return collect_all<W>(exchange.ring, shared.incoming, width * peers, exchange.pieces);
  });
}

template <class W, DataType type, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) exchange_reduce(const __grid_constant__ Exchange exchange) {
  auto& shared = shared_memory<ExchangeRound<W>>();
  const Ring& ring = exchange.ring;
  const Operation operation{exchange.op, ring.averaged, exchange.premul_scalar};
  const auto contribute = [operation](const Granule& value) { return contribution<type, sum_only>(value, operation); };
  const std::uint32_t peers = ring.ranks - 1, width = W::max_width > 1 ? exchange.width : 1;
  run_exchange<W>(exchange, shared, operation.op != ReduceOp::premul_sum, contribute, [&] {
    const auto store = [own = shared.own](std::uint32_t nth, const Segment& segment, const auto& results) {
      store_granules(own[nth].output, segment, results);
    };
    const bool sums = sum_all<W, type>(ring, shared.own, shared.incoming, width, exchange.pieces, operation, store);
    for (std::uint32_t nth = 0; nth < width; ++nth) {
      const Own& own = shared.own[nth];
      if (own.bytes == 0 || (sums && own.are_granules())) continue;
      const auto reduce = [=, call = &exchange, incoming = shared.incoming + nth * peers] {
        return reduce_exchanged<W, type, sum_only>(*call, own, incoming, operation, contribute);
      };
      if (!perhaps_out_of_line<W>(reduce)) return false;
    }
    return true;
  });
}

}  // namespace strait::kernels
