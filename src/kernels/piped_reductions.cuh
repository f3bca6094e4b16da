#pragma once

#include "kernels/pair_arithmetic.cuh"
#include "kernels/piped_adders.cuh"
#include "kernels/unit_reductions.cuh"

/// What an Adder (piped_adders.cuh) does: reductions in rank order, from contributions in shared memory to the place of
/// rank 0's contribution. A thread overwrites only what it has itself read.
namespace strait::kernels {

/// Sums of granules, for the types that have kernels of their own.
template <DataType type>
struct PartSum {
  float scale;
  __device__ void operator()(const Addends& addends, std::byte* to, std::uint32_t bytes, std::uint32_t thread,
                             std::uint32_t threads) const {
    constexpr std::uint32_t batch = 2;
    const std::uint32_t granules = bytes / 16;
    auto* const results = reinterpret_cast<Granule*>(to);
    for (std::uint32_t first = thread; first < granules; first += batch * threads) {
      PairSum<type> sums[batch];
      const auto for_each = [&](auto&& body) {
#pragma unroll
        for (std::uint32_t b = 0; b < batch; ++b)
          if (first + b * threads < granules) body(sums[b], first + b * threads);
      };
      for_each([&](PairSum<type>& sum, std::uint32_t granule) { sum.first(addends(0, granule)); });
      for (std::uint32_t rank = 1; rank < addends.ranks(); ++rank)
        for_each([&](PairSum<type>& sum, std::uint32_t granule) { sum.next(addends(rank, granule)); });
      for_each([&](PairSum<type>& sum, std::uint32_t granule) { results[granule] = result_of(sum); });
    }
    if (thread == 0 && bytes % 16 != 0) results[granules] = last(addends, granules * 16, bytes % 16);
  }

 private:
  __device__ Granule result_of(PairSum<type>& sum) const {
    bool has_nan = false;
    const Granule result = sum.result(scale, has_nan);
    return has_nan ? with_canonical_nan<type>(result) : result;
  }
  __device__ Granule last(const Addends& addends, std::uint32_t at, std::uint32_t bytes) const {
    PairSum<type> sum;
    sum.first(addends.last(0, at, bytes));
    for (std::uint32_t rank = 1; rank < addends.ranks(); ++rank) sum.next(addends.last(rank, at, bytes));
    return result_of(sum);
  }
};

/// Contributions that consist of whole units, by rank; later their result, in the place of the first.
struct UnitsOfPart {
  std::byte* first;
  std::uint32_t stride_bytes, ranks, bytes;
};

template <DataType type, ReduceOp op>
__device__ __forceinline__ void reduce_units(const UnitsOfPart& units, std::uint32_t averaged, std::uint32_t thread,
                                             std::uint32_t threads) {
  using Unit = typename UnitReduction<type, op>::Unit;
#pragma unroll 1
  for (std::uint32_t at = thread * sizeof(Unit); at < units.bytes; at += threads * sizeof(Unit)) {
    UnitReduction<type, op> reduction;
    std::byte* from = units.first + at;
    reduction.first(*reinterpret_cast<const Unit*>(from));
#pragma unroll 1
    for (std::uint32_t rank = 1; rank < units.ranks; ++rank)
      reduction.next(*reinterpret_cast<const Unit*>(from += units.stride_bytes));
    *reinterpret_cast<Unit*>(units.first + at) = reduction.result(averaged);
  }
}

/// Everything it needs comes and stays in registers: if all shared memory of an SM is in use, almost nothing of
/// threads' local memory is cached. (A template only so that a header may define it.)
template <class Units = UnitsOfPart>
STRAIT_NOINLINE __device__ void reduce_units(Units units, DataType type, ReduceOp op, std::uint32_t averaged,
                                             std::uint32_t thread, std::uint32_t threads) {
  visit_reduction(type, op, [&]<DataType t, ReduceOp o>() {
    if constexpr (o != ReduceOp::sum || kernel_type(t) == KernelType::others)
      reduce_units<t, o>(units, averaged, thread, threads);
  });
}

struct PartReduction {
  Operation operation;
  __device__ void operator()(const Addends& addends, std::byte* to, std::uint32_t bytes, std::uint32_t thread,
                             std::uint32_t threads) const {
    const std::uint32_t ranks = addends.ranks(), stride_bytes = addends.stride_bytes(), whole = bytes / 16 * 16;
    reduce_units(UnitsOfPart{to, stride_bytes, ranks, whole}, operation.type, operation.op, operation.averaged, thread,
                 threads);
    if (thread != 0 || bytes == whole) return;
    out_of_line([=] {
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        *reinterpret_cast<Granule*>(to + rank * stride_bytes + whole) = addends.last(rank, whole, bytes - whole);
    });
    reduce_units(UnitsOfPart{to + whole, stride_bytes, ranks, sizeof(Granule)}, operation.type, operation.op,
                 operation.averaged, 0, 1);
  }
};

/// Returns what the adders of a kernel do.
template <KernelType kind, class Call>
__device__ __forceinline__ auto part_reduction_of(const Call& call) {
  const Operation operation{call.op, call.type, call.ring.averaged, {}};
  if constexpr (kind == KernelType::others) {
    return PartReduction{operation};
  } else {
    float scale = 1;
    (void)is_pair_sum<type_of(kind)>(operation, scale);
    return PartSum<type_of(kind)>{scale};
  }
}

}  // namespace strait::kernels
