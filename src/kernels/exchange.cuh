#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/lane.cuh"

/// The kernels of Exchange (launch.hpp): one hop, as a copy and as a reduction.
namespace strait::kernels {

/// Of the chunks of a message, lane l takes l, l + lanes, l + 2 lanes...: the length of the one of this block's round
/// number `round`, and where it lies.
__device__ __forceinline__ std::uint32_t chunk_of(const Message& message, std::uint32_t round, std::size_t& offset) {
  offset = (std::size_t{round} * message.lanes + blockIdx.x) * message.chunk_bytes;
  if (blockIdx.x >= message.lanes || offset >= message.bytes) return 0;
  const std::size_t left = message.bytes - offset;
  return left < message.chunk_bytes ? static_cast<std::uint32_t>(left) : message.chunk_bytes;
}

/// What the threads of a block share in a round of an exchange. Chunks by the position of their peer (position_of).
struct ExchangeRound {
  Outgoing outgoing[max_ranks];
  Incoming incoming[max_ranks];
  const std::byte* own_input;  ///< this rank's part of what is reduced or copied
  std::byte* own_output;
  std::uint32_t own_bytes;
  int failed;
  Outgoing first[max_ranks];  ///< what the first round sends: where from, and how much
};

/// By the thread that looks after a peer: what its first chunk is.
__device__ __forceinline__ void name_first(const Message& send, std::uint32_t position, ExchangeRound& shared) {
  std::size_t offset = 0;
  shared.first[position].bytes = chunk_of(send, 0, offset);
  shared.first[position].source = send.data + offset;
}

/// Fetches what this thread will send first, while those who look after peers find slots for it.
template <class W>
__device__ __forceinline__ void prefetch_first(const ExchangeRound& shared, std::uint32_t count, std::uint32_t pieces) {
  const std::uint32_t number = threadIdx.x / warp_threads;
  if (count == 0 || number >= count * pieces) return;
  const Task task = task_of<W>(number, shared.first, count);
  if (task.place.valid != 0) prefetch(shared.first[task.chunk].source + task.place.offset);
}

/// By the thread that looks after `peer`: what this round sends it.
template <class W>
__device__ __forceinline__ void prepare_send(const Exchange& exchange, const Message& send, Lane<W>& lane,
                                             std::uint32_t peer, std::uint32_t round, ExchangeRound& shared) {
  const Ring& ring = exchange.ring;
  if (peer == ring.rank) return;
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(send, round, offset);
  const std::uint32_t position = position_of(peer, ring.rank, ring.ranks);
  Outgoing outgoing;
  if (!lane.next_slot(send.data + offset, bytes, send.call_hash, outgoing)) shared.failed = 1;
  if (exchange.cast == Cast::single || position == 0) shared.outgoing[position] = outgoing;
}

/// Likewise, what comes from it, or of this rank's own.
template <class W>
__device__ __forceinline__ void prepare_receive(const Exchange& exchange, const Message& send, const Message& receive,
                                                Lane<W>& lane, std::uint32_t peer, std::uint32_t round,
                                                ExchangeRound& shared) {
  const Ring& ring = exchange.ring;
  std::size_t offset = 0;
  const std::uint32_t bytes = chunk_of(receive, round, offset);
  if (peer == ring.rank) {
    shared.own_input = send.data + offset;
    shared.own_output = receive.data + offset;
    shared.own_bytes = bytes;
  } else {
    lane.expect(receive.data + offset, bytes, receive.call_hash,
                shared.incoming[position_of(peer, ring.rank, ring.ranks)]);
  }
}

/// Before any thread takes what comes in the first round of a wire that flags slots.
__device__ __forceinline__ void receive_nothing(const Ring& ring, std::uint32_t peer, ExchangeRound& shared) {
  if (peer == ring.rank) {
    shared.own_bytes = 0;
  } else {
    shared.incoming[position_of(peer, ring.rank, ring.ranks)].bytes = 0;
  }
}

/// `combine()` takes what comes; false: gave up. What is sent is a round ahead of what is taken where slots are
/// flagged, so that a block's reads do not wait for its writes to get through.
template <class W, class Contribution, class Combine>
__device__ __forceinline__ void run_exchange(const Exchange& exchange, ExchangeRound& shared,
                                             Contribution&& contribution, Combine&& combine) {
  const Ring& ring = exchange.ring;
  const bool minds_a_peer = threadIdx.x < ring.ranks;
  const std::uint32_t peer = minds_a_peer ? threadIdx.x : 0;
  const bool has_peer = minds_a_peer && peer != ring.rank;
  const std::uint32_t position = has_peer ? position_of(peer, ring.rank, ring.ranks) : 0;
  const std::uint32_t copies = exchange.cast == Cast::multi ? 1 : ring.ranks - 1;
  constexpr std::uint32_t lead = W::flags_slots ? 1 : 0;
  // What the arguments alone decide comes before the wait, while the launch before this one still runs.
  const Message send = exchange.send[peer], receive = exchange.receive[peer];
  Lane<W> lane(ring, peer, exchange.cast);
  if (has_peer) name_first(send, position, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  __syncthreads();
  after_predecessor();
  const bool goes_on = minds_a_peer && lane.resume();
  if (minds_a_peer && !goes_on) shared.failed = 1;
  bool gives_up = false;
  prefetch_first<W>(shared, copies, exchange.pieces);
  for (std::uint32_t round = 0; round < exchange.rounds + lead; ++round) {
    if (goes_on) {
      prepare_send(exchange, send, lane, peer, round, shared);
      if (lead != 0 && round == 0) {
        receive_nothing(ring, peer, shared);
      } else {
        prepare_receive(exchange, send, receive, lane, peer, round - lead, shared);
      }
      if constexpr (W::flags_slots)
        if (has_peer && !await(ring, shared.incoming[position])) shared.failed = 1;
    }
    const bool has_stale = meet<W>(goes_on && lane.takes_stale_slots());
    gives_up = shared.failed != 0;
    if (gives_up) break;
    if (has_stale) {
      wipe<W>(ring, shared.outgoing, copies);
      __syncthreads();
    }
    push<W>(shared.outgoing, copies, exchange.pieces, contribution);
    // In place, what comes overwrites what was sent: of this round, or where sending leads, of the one before.
    if constexpr (!W::flags_slots) __syncthreads();
    const bool done = combine();
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (!has_peer || round + 1 == exchange.rounds + lead) continue;
    if constexpr (W::flags_slots) {
      __threadfence_system();
      if (position < copies) publish(shared.outgoing[position]);
    }
    lane.give_back();
  }
  if (has_peer) lane.save(gives_up);
}

/// Copies the part that does not leave this rank.
template <class W>
__device__ __forceinline__ void copy_own(const ExchangeRound& shared, std::uint32_t pieces) {
  if (shared.own_bytes == 0 || shared.own_output == shared.own_input) return;
  for_tasks<batch_size>(pieces, [&](const std::uint32_t(&numbers)[batch_size]) {
    Granule values[batch_size];
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      const Place place = W::place_of(numbers[b], shared.own_bytes);
      values[b] = UserBytes<W::stride>(shared.own_input).load(place.offset, place.valid);
    }
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      const Place place = W::place_of(numbers[b], shared.own_bytes);
      UserBytes<W::stride>(shared.own_output).store(place.offset, place.valid, values[b]);
    }
    return true;
  });
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

template <class W>
__global__ void __launch_bounds__(max_threads, 1) exchange_copy(const __grid_constant__ Exchange exchange) {
  auto& shared = shared_memory<ExchangeRound>();
  const auto as_it_is = [](const Granule& value) { return value; };
  const Ring& ring = exchange.ring;
  run_exchange<W>(exchange, shared, as_it_is, [&] {
    copy_own<W>(shared, exchange.pieces);
    return collect<W>(ring, shared.incoming, ring.ranks - 1, exchange.pieces);
  });
}

template <class W, DataType type, bool sum_only>
__global__ void __launch_bounds__(max_threads, 1) exchange_reduce(const __grid_constant__ Exchange exchange) {
  auto& shared = shared_memory<ExchangeRound>();
  const Ring& ring = exchange.ring;
  const Operation operation{exchange.op, ring.averaged, exchange.premul_scalar};
  const auto contribute = [&](const Granule& value) { return contribution<type, sum_only>(value, operation); };
  run_exchange<W>(exchange, shared, contribute, [&] {
    if (shared.own_bytes == 0) return true;
    return for_tasks<W::reduce_batch>(exchange.pieces, [&](const std::uint32_t(&numbers)[W::reduce_batch]) {
      Place places[W::reduce_batch];
      Granule mine[W::reduce_batch];
      Reduction<type, sum_only, Granule> reductions[W::reduce_batch];
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b) {
        places[b] = W::place_of(numbers[b], shared.own_bytes);
        mine[b] = contribute(UserBytes<W::stride>(shared.own_input).load(places[b].offset, places[b].valid));
      }
      if (!reduce_places<W>(ring, shared.incoming, ~0u, places, mine, operation, reductions)) return false;
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b)
        UserBytes<W::stride>(shared.own_output)
            .store(places[b].offset, places[b].valid, reductions[b].result(operation));
      return true;
    });
  });
}

}  // namespace strait::kernels
