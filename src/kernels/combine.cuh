#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/lane.cuh"

/// What becomes of this rank's own part of one lane's round, and of what comes to it: over any wire, and at any address
/// and of any length.
namespace strait::kernels {

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

/// Reduces the chunk of one of the block's lanes. `Call`: an Exchange, or what stands for one. False: gave up.
template <class W, DataType type, bool sum_only, class Call, class Contribution>
__device__ __forceinline__ bool reduce_exchanged(const Call& exchange, const Own& own, const Incoming* incoming,
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

/// Reduces the chunk of this iteration of one of the block's lanes, keeps it if this rank is a receiver, and sends it
/// to the others. `reduce(places, values)` makes granules of the result, of which `values` are this rank's own
/// contributions.
template <class W, class Contribution, class Reduce>
__device__ __forceinline__ bool reduce_own(const TwoHop& call, const Own& own, const Outgoing* results_out,
                                           Contribution&& contribution, Reduce&& reduce) {
  if (own.bytes == 0) return true;
  const std::uint32_t rank = call.ring.rank, peers = call.ring.ranks - 1;
  const bool keeps = has(call.receivers, rank), contributes = has(call.contributors, rank);
  return for_tasks<W::reduce_batch>(call.pieces, [&](const std::uint32_t(&numbers)[W::reduce_batch]) {
    Place places[W::reduce_batch];
    Granule values[W::reduce_batch] = {};
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b) {
      places[b] = W::place_of(numbers[b], own.bytes);
      if (contributes)
        values[b] = contribution(UserBytes<W::stride>(own.input).load(places[b].offset, places[b].valid));
    }
    if (!reduce(places, values)) return false;
    for (std::uint32_t k = 0; k < peers; ++k) {
      if (results_out[k].bytes == 0) continue;
#pragma unroll
      for (int b = 0; b < W::reduce_batch; ++b) send<W>(results_out[k], places[b], values[b]);
    }
#pragma unroll
    for (int b = 0; b < W::reduce_batch; ++b)
      if (keeps) UserBytes<W::stride>(own.output).store(places[b].offset, places[b].valid, values[b]);
    return true;
  });
}

}  // namespace strait::kernels
