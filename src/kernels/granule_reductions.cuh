#pragma once

#include "kernels/granules.cuh"
#include "kernels/unit_reductions.cuh"

/// What is no sum, of bulk chunks that are whole granules at aligned places, in plain loops as sums are (granules.cuh).
namespace strait::kernels {

/// A reduction in progress of a granule, but no average.
template <DataType type, ReduceOp op>
class GranuleReduction {
 public:
  __device__ __forceinline__ void first(const Granule& granule) {
    const auto units = __builtin_bit_cast(Units, granule);
#pragma unroll
    for (int u = 0; u < count; ++u) reductions_[u].first(units.of[u]);
  }
  __device__ __forceinline__ void next(const Granule& granule) {
    const auto units = __builtin_bit_cast(Units, granule);
#pragma unroll
    for (int u = 0; u < count; ++u) reductions_[u].next(units.of[u]);
  }
  __device__ __forceinline__ Granule result() {
    Units units;
#pragma unroll
    for (int u = 0; u < count; ++u) units.of[u] = reductions_[u].result(0);
    return __builtin_bit_cast(Granule, units);
  }

 private:
  using Unit = typename UnitReduction<type, op>::Unit;
  static constexpr int count = sizeof(Granule) / sizeof(Unit);
  struct Units {
    Unit of[count];
  };
  UnitReduction<type, op> reductions_[count];
};

/// What all ranks contribute to a chunk, by the position of their peer in `incoming`, and where the result belongs.
struct Combination {
  const std::byte* input;
  const Incoming* incoming;
  std::byte* output;
  std::uint32_t rank, ranks;

  __device__ __forceinline__ const std::byte* source(std::uint32_t of) const {
    return of == rank ? input : incoming[position_of(of, rank, ranks)].slot;
  }
};

/// In rank order: of the next rank it is under way while that of the last one is combined.
template <DataType type, ReduceOp op>
__device__ __forceinline__ void combine_segment(const Combination& what, const Segment& segment) {
  constexpr int batch = 2;
#pragma unroll 1
  for (std::uint32_t first = segment.first; first < segment.end; first += batch * warp_threads) {
    const Segment part{first, segment.end};
    GranuleReduction<type, op> reductions[batch];
    Granule values[batch], nexts[batch];
    load_granules(what.source(0), part, values);
    load_granules(what.source(1), part, nexts);
#pragma unroll
    for (int b = 0; b < batch; ++b) reductions[b].first(values[b]);
#pragma unroll 1
    for (std::uint32_t rank = 1; rank < what.ranks; ++rank) {
#pragma unroll
      for (int b = 0; b < batch; ++b) values[b] = nexts[b];
      load_granules(what.source(rank + 1 < what.ranks ? rank + 1 : rank), part, nexts);
#pragma unroll
      for (int b = 0; b < batch; ++b) reductions[b].next(values[b]);
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) values[b] = reductions[b].result();
    store_granules(what.output, part, values);
  }
}

/// All that it needs comes in registers, as in a pipe's reduce_units(). No averages: divisions are much code, and
/// seldom. (A template only so that a header may hold it.)
template <class What = Combination>
STRAIT_NOINLINE __device__ void combine_segment(What what, Segment segment, DataType type, ReduceOp op) {
  visit_reduction(type, op, [&]<DataType t, ReduceOp o>() {
    constexpr bool is_product = o == ReduceOp::prod && sum_type(t) == t;
    if constexpr (kernel_type(t) == KernelType::others && (is_product || o == ReduceOp::min || o == ReduceOp::max))
      combine_segment<t, o>(what, segment);
  });
}

/// sum_all() of what is no sum. False, and nothing is done: not an operation, or a chunk, for this.
__device__ __forceinline__ bool combine_all(const Ring& ring, const Own* own, const Incoming* incoming,
                                            std::uint32_t width, std::uint32_t pieces, const Operation& operation) {
  const bool multiplies = operation.op == ReduceOp::prod;
  if (ring.ranks < 2 || (!multiplies && operation.op != ReduceOp::min && operation.op != ReduceOp::max)) return false;
  for (std::uint32_t nth = 0; nth < width; ++nth)
    if (own[nth].bytes != 0 && !are_granules(own[nth])) return false;
  CopyDealer dealer(width * pieces);
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    const Combination what{own[nth].input, incoming + nth * (ring.ranks - 1), own[nth].output, ring.rank, ring.ranks};
    dealer.deal(own[nth].bytes, [&](const Segment& segment) {
      // Products have the same bits with and without a sign.
      combine_segment(what, segment, multiplies ? sum_type(operation.type) : operation.type, operation.op);
    });
  }
  return true;
}

}  // namespace strait::kernels
