#pragma once

#include "kernels/granules.cuh"
#include "kernels/unit_reductions.cuh"

/// Operations other than sums on bulk chunks that consist of whole granules at aligned addresses. They use plain loops,
/// as sums do (granules.cuh).
namespace strait::kernels {

/// A reduction in progress over one granule. Not for averages.
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

/// What all ranks contribute to a chunk (`incoming` is indexed by the position of the peer), and where the result goes.
struct Combination {
  const std::byte* input;
  const Incoming* incoming;
  std::byte* output;
  std::uint32_t rank, ranks;

  __device__ __forceinline__ const std::byte* source(std::uint32_t of) const {
    return of == rank ? input : incoming[position_of(of, rank, ranks)].slot;
  }
};

/// Combines in rank order. While the granules of one rank are combined, those of the next rank are being loaded.
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

/// Everything it needs comes in registers, as in reduce_units() of pipes. Not for averages: divisions take much code,
/// and are rare. (A template only so that a header may define it.)
template <class What = Combination>
STRAIT_NOINLINE __device__ void combine_segment(What what, Segment segment, DataType type, ReduceOp op) {
  visit_reduction(type, op, [&]<DataType t, ReduceOp o>() {
    constexpr bool is_product = o == ReduceOp::prod && sum_type(t) == t;
    if constexpr (kernel_type(t) == KernelType::others && (is_product || o == ReduceOp::min || o == ReduceOp::max))
      combine_segment<t, o>(what, segment);
  });
}

/// As sum_all(), for operations other than sums. Returns false, without doing anything, if the operation or a chunk is
/// not for this.
__device__ __forceinline__ bool combine_all(const Ring& ring, const OwnPart* own, const Incoming* incoming,
                                            std::uint32_t width, std::uint32_t pieces, const Operation& operation) {
  const bool multiplies = operation.op == ReduceOp::prod;
  if (ring.ranks < 2 || (!multiplies && operation.op != ReduceOp::min && operation.op != ReduceOp::max)) return false;
  for (std::uint32_t nth = 0; nth < width; ++nth)
    if (own[nth].bytes != 0 && !are_granules(own[nth])) return false;
  CopyDealer dealer(width * pieces);
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    const Combination what{own[nth].input, incoming + nth * (ring.ranks - 1), own[nth].output, ring.rank, ring.ranks};
    dealer.deal(own[nth].bytes, [&](const Segment& segment) {
      // The products of signed and of unsigned integers have the same bits.
      combine_segment(what, segment, multiplies ? sum_type(operation.type) : operation.type, operation.op);
    });
  }
  return true;
}

}  // namespace strait::kernels
