#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/chunks.cuh"
#include "kernels/lane.cuh"
#include "kernels/other_types.cuh"
#include "kernels/receive.cuh"

/// How a block copies or reduces its rank's own part of one lane's round, together with what it receives. For every
/// protocol, any address and any length.
namespace strait::kernels {

/// Copies the part of one of the block's lanes that does not leave this rank.
template <class P>
__device__ __forceinline__ void copy_own(const OwnPart& own, std::uint32_t pieces) {
  if (own.bytes == 0 || own.output == own.input) return;
  for_tasks<batch_size>(pieces, [&](const std::uint32_t(&numbers)[batch_size]) {
    Granule values[batch_size];
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      const Place place = P::place_of(numbers[b], own.bytes);
      values[b] = UserBytes<P::stride>(own.input).load(place.offset, place.valid);
    }
#pragma unroll
    for (int b = 0; b < batch_size; ++b) {
      const Place place = P::place_of(numbers[b], own.bytes);
      UserBytes<P::stride>(own.output).store(place.offset, place.valid, values[b]);
    }
    return true;
  });
}

/// Returns what a rank that contributes a chunk without adding it up keeps of it. Nothing is copied if input and output
/// are the same.
__device__ __forceinline__ OwnPart own_of(const TwoHop& call, const Outgoing& contribution) {
  return {contribution.source, call.output + (contribution.source - call.input), contribution.bytes};
}

inline constexpr std::uint32_t peers_at_once = 3;  ///< peers whose granules a thread loads at the same time

/// The peers of a rank, in rank order, a few at a time.
class PeersInTurn {
 public:
  /// Begins with peer number `first`.
  __device__ PeersInTurn(const Ring& ring, std::uint32_t first)
      : first_(first), rank_(ring.rank), others_(ring.ranks - 1), own_(ring.rank - first) {
    const bool is_last = first + peers_at_once >= others_;
    has_own_ = ring.rank >= first && (own_ < peers_at_once || (is_last && own_ == peers_at_once));
  }
  /// Returns the rank of the i-th of these peers.
  __device__ std::uint32_t peer(std::uint32_t i) const { return first_ + i + (first_ + i >= rank_ ? 1 : 0); }
  __device__ bool has(std::uint32_t i) const { return i < peers_at_once && first_ + i < others_; }
  /// Among these peers and this rank, in rank order: whether the i-th is this rank, and whether it follows this rank.
  __device__ bool is_own(std::uint32_t i) const { return has_own_ && i == own_; }
  __device__ bool is_behind_own(std::uint32_t i) const { return has_own_ && i > own_; }

 private:
  const std::uint32_t first_, rank_, others_, own_;
  bool has_own_;
};

/// Reduces the granules of all contributors for some places, in rank order. `chunks` are indexed by position; `mine`
/// are this rank's own contributions; `has_more`: see receive(). Returns false if it gave up.
template <class P, class R>
__device__ __forceinline__ bool reduce_places(const Ring& ring, const Incoming* chunks, std::uint32_t contributors,
                                              const Place (&places)[P::reduce_batch],
                                              const Granule (&mine)[P::reduce_batch], const Operation& operation,
                                              R (&reductions)[P::reduce_batch], bool has_more = true) {
  constexpr int batch = P::reduce_batch;
  bool is_first = true;
  for (std::uint32_t first = 0; first == 0 || first + 1 < ring.ranks; first += peers_at_once) {
    const PeersInTurn turn(ring, first);
    Granule values[peers_at_once * batch];
    Awaited awaited[peers_at_once * batch];
    clear<P>(values);
#pragma unroll
    for (std::uint32_t i = 0; i < peers_at_once; ++i) {
      const bool reads = turn.has(i) && (contributors >> turn.peer(i) & 1) != 0;
      const Incoming& chunk = chunks[reads ? position_of(turn.peer(i), ring.rank, ring.ranks) : 0];
#pragma unroll
      for (int b = 0; b < batch; ++b)
        awaited[i * batch + b] = {reads && places[b].active ? chunk.slot + places[b].slot_offset : nullptr, chunk.flag,
                                  turn.peer(i)};
    }
    if (!receive<P, true>(ring, awaited, values, has_more)) return false;
#pragma unroll
    for (std::uint32_t i = 0; i <= peers_at_once; ++i) {
      const bool is_own = turn.is_own(i), is_behind = turn.is_behind_own(i);
      const std::uint32_t peer = is_own ? ring.rank : turn.peer(is_behind ? i - 1 : i);
      if (!is_own && !turn.has(is_behind ? i - 1 : i)) continue;
      if ((contributors >> peer & 1) == 0) continue;
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        // Copied by value, because references would need local memory.
        Granule value = values[(i == peers_at_once ? i - 1 : i) * batch + b];
        if (is_behind) value = values[(i == 0 ? 0 : i - 1) * batch + b];
        if (is_own) value = mine[b];
        if (is_first) {
          reductions[b].first(value, operation);
        } else {
          reductions[b].next(value, operation);
        }
      }
      is_first = false;
    }
  }
  return true;
}

/// Reduces the chunk of one of the block's lanes. `Call` is an Exchange or a type with the same interface. Returns
/// false if it gave up.
template <class P, DataType type, bool sum_only, class Call, class Contribution>
__device__ __forceinline__ bool reduce_exchanged(const Call& exchange, const OwnPart& own, const Incoming* incoming,
                                                 const Operation& operation, Contribution&& contribute) {
  return for_tasks<P::reduce_batch>(exchange.pieces, [&](const std::uint32_t(&numbers)[P::reduce_batch]) {
    Place places[P::reduce_batch];
    Granule mine[P::reduce_batch];
    Reduction<type, sum_only, Granule> reductions[P::reduce_batch];
#pragma unroll
    for (int b = 0; b < P::reduce_batch; ++b) {
      places[b] = P::place_of(numbers[b], own.bytes);
      mine[b] = contribute(UserBytes<P::stride>(own.input).load(places[b].offset, places[b].valid));
    }
    const bool has_more = P::reduce_batch > 1 || exchange.ring.ranks > 2;  // in bulk the first peer has two places
    if (!reduce_places<P>(exchange.ring, incoming, ~0u, places, mine, operation, reductions, has_more)) return false;
#pragma unroll
    for (int b = 0; b < P::reduce_batch; ++b)
      UserBytes<P::stride>(own.output).store(places[b].offset, places[b].valid, reductions[b].result(operation));
    return true;
  });
}

/// Reduces this iteration's chunk of one of the block's lanes, stores it if this rank is a receiver, and sends it to
/// the other receivers. `reduce(places, values)` turns `values`, this rank's own contributions, into granules of the
/// result.
template <class P, class Contribution, class Reduce>
__device__ __forceinline__ bool reduce_own(const TwoHop& call, const OwnPart& own, const Outgoing* results_out,
                                           Contribution&& contribution, Reduce&& reduce) {
  if (own.bytes == 0) return true;
  const std::uint32_t rank = call.ring.rank, peers = call.ring.ranks - 1;
  const bool keeps = has(call.receivers, rank), contributes = has(call.contributors, rank);
  return for_tasks<P::reduce_batch>(call.pieces, [&](const std::uint32_t(&numbers)[P::reduce_batch]) {
    Place places[P::reduce_batch];
    Granule values[P::reduce_batch] = {};
#pragma unroll
    for (int b = 0; b < P::reduce_batch; ++b) {
      places[b] = P::place_of(numbers[b], own.bytes);
      if (contributes)
        values[b] = contribution(UserBytes<P::stride>(own.input).load(places[b].offset, places[b].valid));
    }
    if (!reduce(places, values)) return false;
    for (std::uint32_t k = 0; k < peers; ++k) {
      if (results_out[k].bytes == 0) continue;
#pragma unroll
      for (int b = 0; b < P::reduce_batch; ++b) send<P>(results_out[k], places[b], values[b]);
    }
#pragma unroll
    for (int b = 0; b < P::reduce_batch; ++b)
      if (keeps) UserBytes<P::stride>(own.output).store(places[b].offset, places[b].valid, values[b]);
    return true;
  });
}

}  // namespace strait::kernels
