#pragma once

#include "kernels/granules.cuh"
#include "kernels/unit_reductions.cuh"

/// What is no sum, of bulk chunks that are whole granules at aligned places, in plain loops as sums are (granules.cuh).
namespace strait::kernels {

/// A reduction in progress of a granule.
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
  __device__ __forceinline__ Granule result(std::uint32_t averaged) {
    Units units;
#pragma unroll
    for (int u = 0; u < count; ++u) units.of[u] = reductions_[u].result(averaged);
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

/// What all ranks contribute to a chunk, by the position of their peer in `incoming`, and where the result belongs: to
/// slots of peers, of as many as there are, and where this rank keeps it (nullptr: nowhere).
struct Combination {
  const std::byte* input;
  const Incoming* incoming;
  const Outgoing* results;  ///< nullptr: none
  std::byte* output;
  std::uint32_t rank, ranks;

  __device__ __forceinline__ const std::byte* source(std::uint32_t of) const {
    return of == rank ? input : incoming[position_of(of, rank, ranks)].slot;
  }
};

/// In rank order: of the next rank it is under way while that of the last one is combined.
template <DataType type, ReduceOp op>
__device__ __forceinline__ void combine_segment(const Combination& what, const Segment& segment,
                                                std::uint32_t averaged) {
  constexpr int batch = 2;
#pragma unroll 1
  for (std::uint32_t first = segment.first; first < segment.end; first += batch * warp_threads) {
    const Segment part{first, segment.end};
    GranuleReduction<type, op> reductions[batch];
    Granule values[batch], nexts[batch];
    load_granules(what.source(0), part, values);
    load_granules(what.source(what.ranks - 1 == 0 ? 0 : 1), part, nexts);
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
    for (int b = 0; b < batch; ++b) values[b] = reductions[b].result(averaged);
    for (std::uint32_t k = 0; what.results != nullptr && k + 1 < what.ranks; ++k)
      if (what.results[k].bytes != 0) store_granules(what.results[k].slot, part, values);
    if (what.output != nullptr) store_granules(what.output, part, values);
  }
}

/// `type`: of the kernel. All that it needs comes in registers, as in a pipe's reduce_units().
template <DataType type>
STRAIT_NOINLINE __device__ void combine_segment(Combination what, Segment segment, DataType element_type, ReduceOp op,
                                                std::uint32_t averaged) {
  visit_reduction(element_type, op, [&]<DataType t, ReduceOp o>() {
    if constexpr (o != ReduceOp::sum && o != ReduceOp::avg &&
                  (type == other_types ? kernel_type(t) == KernelType::others : t == type))
      combine_segment<t, o>(what, segment, averaged);
  });
}

/// sum_all() of what is no sum. False, and nothing is done: not an operation, or a chunk, for this. `results`: as of a
/// Combination, of all lanes.
template <DataType type>
__device__ __forceinline__ bool combine_all(const Ring& ring, const Own* own, const Incoming* incoming,
                                            std::uint32_t width, std::uint32_t pieces, const Operation& operation,
                                            bool keeps, const Outgoing* results) {
  if (operation.op == ReduceOp::premul_sum) return false;
  for (std::uint32_t nth = 0; nth < width; ++nth)
    if (own[nth].bytes != 0 && !are_granules(own[nth])) return false;
  const std::uint32_t peers = ring.ranks - 1;
  CopyDealer dealer(width * pieces);
  for (std::uint32_t nth = 0; nth < width; ++nth) {
    const Combination what{own[nth].input,
                           incoming + nth * peers,
                           results != nullptr ? results + nth * peers : nullptr,
                           keeps ? own[nth].output : nullptr,
                           ring.rank,
                           ring.ranks};
    dealer.deal(own[nth].bytes, [&](const Segment& segment) {
      combine_segment<type>(what, segment, operation.type, operation.op, operation.averaged);
    });
  }
  return true;
}

}  // namespace strait::kernels
