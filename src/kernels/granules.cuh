#pragma once

#include "kernels/combine.cuh"
#include "kernels/lane.cuh"
#include "kernels/odd_chunk.cuh"
#include "kernels/pair_arithmetic.cuh"
#include "kernels/receive.cuh"
#include "kernels/shifted.cuh"

/// Bulk chunks that are whole granules at aligned places, as nearly all are, in plain loops: how much a few blocks move
/// is decided by what their threads have in flight, and by how few instructions that takes. Of chunks of an odd address
/// or length (the last one of a message) copies and sums put granules together; other operations take the way of
/// lane.cuh and combine.cuh.
namespace strait::kernels {

__device__ __forceinline__ bool are_granules(const Own& own) { return are_granules(own.bytes, own.input, own.output); }

/// push() of the chunks of all of a block's lanes. `as_it_is`: the contribution is what the user's memory holds.
template <class Contribution>
__device__ __forceinline__ void push_all(const Outgoing* chunks, std::uint32_t count, std::uint32_t pieces,
                                         bool as_it_is, Contribution&& contribution) {
  CopyDealer dealer(count * pieces);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Outgoing& chunk = chunks[i];
    if (chunk.bytes == 0) continue;
    if (as_it_is)
      copy_by_block(dealer, chunk.slot, chunk.source, chunk.bytes);
    else
      out_of_line([at = &chunk, pieces, contribution] { push<Bulk>(at, 1, pieces, contribution); });
  }
}

/// Likewise collect(), which here waits for nothing.
__device__ __forceinline__ void collect_all(CopyDealer& dealer, const Incoming* chunks, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    if (chunks[i].bytes != 0) copy_by_block(dealer, chunks[i].destination, chunks[i].slot, chunks[i].bytes);
}

__device__ __forceinline__ void collect_all(const Incoming* chunks, std::uint32_t count, std::uint32_t pieces) {
  CopyDealer dealer(count * pieces);
  collect_all(dealer, chunks, count);
}

/// copy_own() of all of a block's lanes.
__device__ __forceinline__ void copy_all_own(CopyDealer& dealer, const Own* all, std::uint32_t width) {
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    const Own& own = all[nth];
    if (own.bytes != 0 && own.output != own.input) copy_by_block(dealer, own.output, own.input, own.bytes);
  }
}

/// Both, side by side: a link does not wait for what is copied within the GPU.
__device__ __forceinline__ void take_all(const Ring& ring, const Own* own, const Incoming* chunks, std::uint32_t width,
                                         std::uint32_t pieces) {
  const std::uint32_t count = (ring.ranks - 1) * width;
  CopyDealer dealer((count + width) * pieces);
  copy_all_own(dealer, own, width);
  collect_all(dealer, chunks, count);
}

/// Granules that a thread sums at a time.
template <std::uint32_t ranks>
inline constexpr int sum_batch = ranks == 2   ? 8
                                 : ranks == 0 ? 2
                                              : 4;
/// Sums the granules of a segment from all ranks: `source(rank)` says where the chunk of a rank begins. `has_nan`: as
/// of PairSum. Of few ranks, all that a thread sums is in flight together.
template <DataType type, std::uint32_t ranks, int batch, class Source>
__device__ __forceinline__ void sum_few(const Segment& segment, float scale, const Source& source,
                                        Granule (&results)[batch], bool& has_nan) {
  Granule values[ranks][batch];
#pragma unroll
  for (std::uint32_t rank = 0; rank < ranks; ++rank) load_granules(source(rank), segment, values[rank]);
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    PairSum<type> sum;
    sum.first(values[0][b]);
#pragma unroll
    for (std::uint32_t rank = 1; rank < ranks; ++rank) sum.next(values[rank][b]);
    results[b] = sum.result(scale, has_nan);
  }
}
template <DataType type, int batch, class Source>
__device__ __forceinline__ void sum_many(const Segment& segment, std::uint32_t ranks, float scale, const Source& source,
                                         Granule (&results)[batch], bool& has_nan) {
  constexpr std::uint32_t at_once = 4;
  PairSum<type> sums[batch];
  Granule values[at_once][batch];
  load_granules(source(0), segment, values[0]);
#pragma unroll
  for (int b = 0; b < batch; ++b) sums[b].first(values[0][b]);
  for (std::uint32_t first = 1; first < ranks; first += at_once) {
#pragma unroll
    for (std::uint32_t i = 0; i < at_once; ++i)
      load_granules(source(first + i < ranks ? first + i : 0), segment, values[i]);
#pragma unroll
    for (std::uint32_t i = 0; i < at_once; ++i) {
      if (first + i >= ranks) break;
#pragma unroll
      for (int b = 0; b < batch; ++b) sums[b].next(values[i][b]);
    }
  }
#pragma unroll
  for (int b = 0; b < batch; ++b) results[b] = sums[b].result(scale, has_nan);
}

/// `fixed_ranks`: 0: not known when compiled.
template <DataType type, std::uint32_t fixed_ranks, int batch, class Source>
__device__ __forceinline__ void sum_segment(const Segment& segment, std::uint32_t ranks, float scale,
                                            const Source& source, Granule (&results)[batch]) {
  bool has_nan = false;
  if constexpr (fixed_ranks != 0)
    sum_few<type, fixed_ranks>(segment, scale, source, results, has_nan);
  else
    sum_many<type>(segment, ranks, scale, source, results, has_nan);
  if (!has_nan) return;
#pragma unroll
  for (int b = 0; b < batch; ++b) results[b] = with_canonical_nan<type>(results[b]);
}

/// Where the contributions to the chunks of a block's lanes lie, by lane and position of their peer, and what becomes
/// of their sums: `pass_on(nth, segment, results)` has those of the nth lane; and they are kept, if `keeps`.
template <class PassOn>
struct Sums {
  const Own* own;
  const Incoming* incoming;
  std::uint32_t rank, ranks;
  float scale;
  bool keeps;
  PassOn pass_on;

  __device__ const std::byte* slot(std::uint32_t nth, std::uint32_t of) const {
    return incoming[nth * (ranks - 1) + position_of(of, rank, ranks)].slot;
  }
};

/// Sums a chunk of granules.
template <DataType type, std::uint32_t fixed_ranks, class PassOn>
__device__ __forceinline__ void sum_granules(Dealer<sum_batch<fixed_ranks>>& dealer, std::uint32_t nth,
                                             const Sums<PassOn>& sums) {
  const Own& own = sums.own[nth];
  const auto source = [&](std::uint32_t of) { return of == sums.rank ? own.input : sums.slot(nth, of); };
  const std::byte* sources[fixed_ranks + 1];
#pragma unroll
  for (std::uint32_t rank = 0; rank + 1 <= fixed_ranks; ++rank) sources[rank] = source(rank);
  dealer.deal(own.bytes, [&](const Segment& segment) {
    Granule results[sum_batch<fixed_ranks>];
    const auto known = [&](std::uint32_t rank) { return fixed_ranks != 0 ? sources[rank] : source(rank); };
    sum_segment<type, fixed_ranks>(segment, sums.ranks, sums.scale, known, results);
    sums.pass_on(nth, segment, results);
    if (sums.keeps) store_granules(own.output, segment, results);
  });
}

/// Likewise one that the user has at an odd place, or whose length is odd.
template <DataType type, std::uint32_t fixed_ranks, int batch, class PassOn>
__device__ __forceinline__ Dealer<batch> sum_odd(Dealer<batch> dealer, std::uint32_t nth, const Sums<PassOn>& sums) {
  constexpr std::uint32_t ranks = fixed_ranks == 2 ? 2 : 0;
  constexpr int at_once = ranks == 2 ? 4 : 1;  // each of this rank's own has two loads
  const Own own = sums.own[nth];
  const OddChunk input(own.input, own.bytes), output(own.output, own.bytes);
  const std::uint32_t padded = OddChunk::padded(own.bytes);
  const auto source = [&](std::uint32_t of) { return of == sums.rank ? input : OddChunk(sums.slot(nth, of), padded); };
  dealer.deal(padded, [&](const Segment& segment) {
    for (std::uint32_t first = segment.first; first < segment.end; first += at_once * warp_threads) {
      const Segment part{first, segment.end};
      Granule results[at_once];
      sum_segment<type, ranks>(part, sums.ranks, sums.scale, source, results);
      sums.pass_on(nth, part, results);
      if (sums.keeps) output.store(part, results);
    }
  });
  return dealer;
}

/// Sums what came on all of a block's lanes. False, and nothing is done: not an operation for this.
template <DataType type, class PassOn>
__device__ __forceinline__ bool sum_all(const Ring& ring, const Own* own, const Incoming* incoming, std::uint32_t width,
                                        std::uint32_t pieces, const Operation& operation, bool keeps,
                                        const PassOn& pass_on) {
  return with_pair_sum<type>(operation, [&]<DataType t>(float scale) {
    const Sums<PassOn> sums{own, incoming, ring.rank, ring.ranks, scale, keeps, pass_on};
    const auto sum = [&]<std::uint32_t fixed_ranks>() {
      Dealer<sum_batch<fixed_ranks>> dealer(width * pieces);
      for (std::uint32_t nth = 0; nth < width; ++nth) {
        if (own[nth].bytes == 0) continue;
        if (are_granules(own[nth]))
          sum_granules<t, fixed_ranks>(dealer, nth, sums);
        else
          dealer = out_of_line([=] { return sum_odd<t, fixed_ranks>(dealer, nth, sums); });
      }
    };
    if constexpr (!is_float8<t>) {  // those would take registers for more granules than there are
      if (ring.ranks == 2) return sum.template operator()<2>();
      if (ring.ranks == 4) return sum.template operator()<4>();
      if constexpr (type != other_types)
        if (ring.ranks == 3) return sum.template operator()<3>();
    }
    sum.template operator()<0>();
  });
}

}  // namespace strait::kernels
