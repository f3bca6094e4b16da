#pragma once

#include "kernels/combine.cuh"
#include "kernels/lane.cuh"
#include "kernels/odd_chunk.cuh"
#include "kernels/pair_arithmetic.cuh"
#include "kernels/receive.cuh"
#include "kernels/shifted.cuh"

/// Bulk chunks that consist of whole granules at aligned addresses, as nearly all do, in plain loops. How much a few
/// blocks can move depends on how many loads their threads have in flight, and on how few instructions that takes. For
/// chunks with an odd address or length (the last one of a message), copies and sums assemble granules; other
/// operations use lane.cuh and combine.cuh.
namespace strait::kernels {

__device__ __forceinline__ bool are_granules(const OwnPart& own) {
  return are_granules(own.bytes, own.input, own.output);
}

/// As push(), for the chunks of all of a block's lanes, without changing the data.
__device__ __forceinline__ void push_all(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces) {
  CopyDealer dealer(count * pieces);
  for (std::uint32_t i = 0; i < count; ++i)
    if (chunks[i].bytes != 0) copy_by_block(dealer, chunks[i].slot, chunks[i].source, chunks[i].bytes);
}

/// As push_all(), but sends the products with this rank's scalar.
template <DataType type>
__device__ __forceinline__ void push_premultiplied(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces,
                                                   const Operation& operation) {
  CopyDealer dealer(count * pieces);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Outgoing& chunk = chunks[i];
    if (chunk.bytes == 0) continue;
    if (type == other_types || !are_granules(chunk.bytes, chunk.source)) {
      push<Bulk>(&chunk, 1, pieces, [&](const Granule& value) { return contribution<type, false>(value, operation); });
    } else if constexpr (type != other_types) {
      const float scalar = scalar_of<type>(operation);
      dealer.deal(chunk.bytes, [&](const Segment& segment) {
        Granule values[copy_batch];
        load_granules(chunk.source, segment, values);
#pragma unroll
        for (Granule& value : values) value = premultiplied<type>(value, scalar);
        store_granules(chunk.slot, segment, values);
      });
    }
  }
}
/// Sends what a rank contributes to a reduction.
template <DataType type>
__device__ __forceinline__ void push_contributions(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces,
                                                   const Operation& operation) {
  if (operation.op != ReduceOp::premul_sum) return push_all(chunks, count, pieces);
  out_of_line([=] { push_premultiplied<type>(chunks, count, pieces, operation); });
}

/// As collect(), for all of a block's lanes; in bulk it need not wait.
__device__ __forceinline__ void collect_all(CopyDealer& dealer, const Incoming* chunks, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    if (chunks[i].bytes != 0) copy_by_block(dealer, chunks[i].destination, chunks[i].slot, chunks[i].bytes);
}

__device__ __forceinline__ void collect_all(const Incoming* chunks, std::uint32_t count, std::uint32_t pieces) {
  CopyDealer dealer(count * pieces);
  collect_all(dealer, chunks, count);
}

/// As copy_own(), for all of a block's lanes.
__device__ __forceinline__ void copy_all_own(CopyDealer& dealer, const OwnPart* all, std::uint32_t width) {
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    const OwnPart& own = all[nth];
    if (own.bytes != 0 && own.output != own.input) copy_by_block(dealer, own.output, own.input, own.bytes);
  }
}

/// Does both at the same time, so that the link does not wait for copies within the GPU.
__device__ __forceinline__ void take_all(const Ring& ring, const OwnPart* own, const Incoming* chunks,
                                         std::uint32_t width, std::uint32_t pieces) {
  const std::uint32_t count = (ring.ranks - 1) * width;
  CopyDealer dealer((count + width) * pieces);
  copy_all_own(dealer, own, width);
  collect_all(dealer, chunks, count);
}

/// What is done to a rank's contribution before it is added. Only this rank's own contribution may need anything.
struct AsItIs {
  template <int batch>
  __device__ __forceinline__ void operator()(std::uint32_t /*rank*/, Granule (&/*values*/)[batch]) const {}
};
template <DataType type>
struct OwnPremultiplied {
  std::uint32_t own_rank;
  float scalar;
  template <int batch>
  __device__ __forceinline__ void operator()(std::uint32_t rank, Granule (&values)[batch]) const {
    if (rank != own_rank) return;
#pragma unroll
    for (Granule& value : values) value = premultiplied<type>(value, scalar);
  }
};

/// Granules that a thread sums at a time.
template <std::uint32_t ranks>
inline constexpr int sum_batch = ranks == 2   ? 8
                                 : ranks == 0 ? 2
                                              : 4;
/// Sums the granules of a segment over all ranks; `source(rank)` returns where the rank's chunk begins. `has_nan`: see
/// PairSum. With few ranks, a thread loads everything that it sums at the same time.
template <DataType type, std::uint32_t ranks, int batch, class Source, class Change>
__device__ __forceinline__ void sum_few(const Segment& segment, float scale, const Source& source, const Change& change,
                                        Granule (&results)[batch], bool& has_nan) {
  Granule values[ranks][batch];
#pragma unroll
  for (std::uint32_t rank = 0; rank < ranks; ++rank) load_granules(source(rank), segment, values[rank]);
#pragma unroll
  for (std::uint32_t rank = 0; rank < ranks; ++rank) change(rank, values[rank]);
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    PairSum<type> sum;
    sum.first(values[0][b]);
#pragma unroll
    for (std::uint32_t rank = 1; rank < ranks; ++rank) sum.next(values[rank][b]);
    results[b] = sum.result(scale, has_nan);
  }
}
template <DataType type, int batch, class Source, class Change>
__device__ __forceinline__ void sum_many(const Segment& segment, std::uint32_t ranks, float scale, const Source& source,
                                         const Change& change, Granule (&results)[batch], bool& has_nan) {
  constexpr std::uint32_t at_once = 4;
  PairSum<type> sums[batch];
  Granule values[at_once][batch];
  load_granules(source(0), segment, values[0]);
  change(0, values[0]);
#pragma unroll
  for (int b = 0; b < batch; ++b) sums[b].first(values[0][b]);
  for (std::uint32_t first = 1; first < ranks; first += at_once) {
#pragma unroll
    for (std::uint32_t i = 0; i < at_once; ++i)
      load_granules(source(first + i < ranks ? first + i : 0), segment, values[i]);
#pragma unroll
    for (std::uint32_t i = 0; i < at_once; ++i) {
      if (first + i >= ranks) break;
      change(first + i, values[i]);
#pragma unroll
      for (int b = 0; b < batch; ++b) sums[b].next(values[i][b]);
    }
  }
#pragma unroll
  for (int b = 0; b < batch; ++b) results[b] = sums[b].result(scale, has_nan);
}

/// `fixed_ranks`: the number of ranks, or 0 if it is not known at compile time.
template <DataType type, std::uint32_t fixed_ranks, int batch, class Source, class Change>
__device__ __forceinline__ void sum_segment(const Segment& segment, std::uint32_t ranks, float scale,
                                            const Source& source, const Change& change, Granule (&results)[batch]) {
  bool has_nan = false;
  if constexpr (fixed_ranks != 0)
    sum_few<type, fixed_ranks>(segment, scale, source, change, results, has_nan);
  else
    sum_many<type>(segment, ranks, scale, source, change, results, has_nan);
  if (!has_nan) return;
#pragma unroll
  for (int b = 0; b < batch; ++b) results[b] = with_canonical_nan<type>(results[b]);
}

/// Where the contributions to the chunks of a block's lanes lie, by lane and position of their peer, and what is done
/// with the sums: `pass_on(nth, segment, results)` sends those of the nth lane, and if `keeps`, they are stored on this
/// rank.
template <class PassOn, class Change>
struct Sums {
  const OwnPart* own;
  const Incoming* incoming;
  std::uint32_t rank, ranks;
  float scale;
  bool keeps;
  PassOn pass_on;
  Change change;

  __device__ const std::byte* slot(std::uint32_t nth, std::uint32_t of) const {
    return incoming[nth * (ranks - 1) + position_of(of, rank, ranks)].slot;
  }
};

/// Sums a chunk that consists of granules.
template <DataType type, std::uint32_t fixed_ranks, class PassOn, class Change>
__device__ __forceinline__ void sum_granules(Dealer<sum_batch<fixed_ranks>>& dealer, std::uint32_t nth,
                                             const Sums<PassOn, Change>& sums) {
  const OwnPart& own = sums.own[nth];
  const auto source = [&](std::uint32_t of) { return of == sums.rank ? own.input : sums.slot(nth, of); };
  const std::byte* sources[fixed_ranks + 1];
#pragma unroll
  for (std::uint32_t rank = 0; rank + 1 <= fixed_ranks; ++rank) sources[rank] = source(rank);
  dealer.deal(own.bytes, [&](const Segment& segment) {
    Granule results[sum_batch<fixed_ranks>];
    const auto known = [&](std::uint32_t rank) { return fixed_ranks != 0 ? sources[rank] : source(rank); };
    sum_segment<type, fixed_ranks>(segment, sums.ranks, sums.scale, known, sums.change, results);
    sums.pass_on(nth, segment, results);
    if (sums.keeps) store_granules(own.output, segment, results);
  });
}

/// Sums a chunk whose address in user memory or whose length is odd.
template <DataType type, std::uint32_t fixed_ranks, int batch, class PassOn>
__device__ __forceinline__ Dealer<batch> sum_odd(Dealer<batch> dealer, std::uint32_t nth,
                                                 const Sums<PassOn, AsItIs>& sums) {
  constexpr std::uint32_t ranks = fixed_ranks == 2 ? 2 : 0;
  constexpr int at_once = ranks == 2 ? 4 : 1;  // this rank's own granules take two loads each
  const OwnPart own = sums.own[nth];
  const OddChunk input(own.input, own.bytes), output(own.output, own.bytes);
  const std::uint32_t padded = OddChunk::padded(own.bytes);
  const auto source = [&](std::uint32_t of) { return of == sums.rank ? input : OddChunk(sums.slot(nth, of), padded); };
  dealer.deal(padded, [&](const Segment& segment) {
    for (std::uint32_t first = segment.first; first < segment.end; first += at_once * warp_threads) {
      const Segment part{first, segment.end};
      Granule results[at_once];
      sum_segment<type, ranks>(part, sums.ranks, sums.scale, source, sums.change, results);
      sums.pass_on(nth, part, results);
      if (sums.keeps) output.store(part, results);
    }
  });
  return dealer;
}

template <DataType type, std::uint32_t fixed_ranks, class PassOn>
__device__ __forceinline__ void sum_lanes(const Sums<PassOn, AsItIs>& sums, std::uint32_t width, std::uint32_t pieces) {
  Dealer<sum_batch<fixed_ranks>> dealer(width * pieces);
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    if (sums.own[nth].bytes == 0) continue;
    if (are_granules(sums.own[nth]))
      sum_granules<type, fixed_ranks>(dealer, nth, sums);
    else
      dealer = out_of_line([=] { return sum_odd<type, fixed_ranks>(dealer, nth, sums); });
  }
}

/// As sum_lanes(), with this rank's own contributions multiplied by its scalar. Returns false, without doing anything,
/// if a chunk does not consist of granules.
template <DataType type, class PassOn>
__device__ __forceinline__ bool sum_premultiplied(const Sums<PassOn, OwnPremultiplied<type>>& sums, std::uint32_t width,
                                                  std::uint32_t pieces) {
  for (std::uint32_t nth = 0; nth < width; ++nth)
    if (sums.own[nth].bytes != 0 && !are_granules(sums.own[nth])) return false;
  const auto sum = [&]<std::uint32_t fixed_ranks>() {
    Dealer<sum_batch<fixed_ranks>> dealer(width * pieces);
    for (std::uint32_t nth = 0; nth < width; ++nth) sum_granules<type, fixed_ranks>(dealer, nth, sums);
    return true;
  };
  return sums.ranks == 2 ? sum.template operator()<2>() : sum.template operator()<0>();
}

/// Sums what has arrived on all of a block's lanes. Returns false, without doing anything, if the operation is not for
/// this.
template <DataType type, class PassOn>
__device__ __forceinline__ bool sum_all(const Ring& ring, const OwnPart* own, const Incoming* incoming,
                                        std::uint32_t width, std::uint32_t pieces, const Operation& operation,
                                        bool keeps, const PassOn& pass_on) {
  if constexpr (type != other_types)
    if (operation.op == ReduceOp::premul_sum)
      return out_of_line([=, rank = ring.rank, ranks = ring.ranks] {
        const OwnPremultiplied<type> change{rank, scalar_of<type>(operation)};
        return sum_premultiplied<type, PassOn>({own, incoming, rank, ranks, 1, keeps, pass_on, change}, width, pieces);
      });
  return with_pair_sum<type>(operation, [&]<DataType t>(float scale) {
    const Sums<PassOn, AsItIs> sums{own, incoming, ring.rank, ring.ranks, scale, keeps, pass_on, {}};
    if constexpr (!is_float8<t>) {  // float8 would take registers for more granules than there are
      if (ring.ranks == 2) return sum_lanes<t, 2>(sums, width, pieces);
      if (ring.ranks == 4) return sum_lanes<t, 4>(sums, width, pieces);
      if constexpr (type != other_types)
        if (ring.ranks == 3) return sum_lanes<t, 3>(sums, width, pieces);
    }
    sum_lanes<t, 0>(sums, width, pieces);
  });
}

}  // namespace strait::kernels
