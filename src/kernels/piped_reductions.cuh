#pragma once

#include "kernels/other_types.cuh"
#include "kernels/pair_arithmetic.cuh"
#include "kernels/piped_adders.cuh"

/// What an Adder (piped_adders.cuh) does: reductions in rank order of what lies in shared memory, to where the
/// contribution of rank 0 was. A thread writes over nothing but what it has read.
namespace strait::kernels {

/// Sums of granules, of the types that have kernels of their own.
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

/// A reduction in progress of one of the units that all others go by, of at most eight elements: adders have registers
/// for the accumulators of no more.
template <DataType type, ReduceOp op>
class UnitReduction {
 public:
  using Unit = std::conditional_t<sizeof(spec::ElementType<type>) == 1, std::uint64_t, Granule>;

  __device__ __forceinline__ void first(const Unit& unit) { widen<type>(unit, values_); }
  __device__ __forceinline__ void next(const Unit& unit) {
    Accumulator others[count];
    widen<type>(unit, others);
#pragma unroll
    for (int e = 0; e < count; ++e) values_[e] = spec::combine<op>(values_[e], others[e]);
  }
  __device__ __forceinline__ Unit result(std::uint32_t averaged) {
    if constexpr (op == ReduceOp::avg) divide(values_, averaged);
    return narrow<type, Unit>(values_);
  }

 private:
  using Accumulator = spec::AccumulatorType<type>;
  static constexpr int count = elements_of<type, Unit>;
  Accumulator values_[count];
};
/// Of bytes that are combined as they are.
template <DataType type, ReduceOp op>
requires is_word_operation<type, op>
class UnitReduction<type, op> {
 public:
  struct alignas(8) Unit {  // one access
    std::uint32_t words[2];
  };
  __device__ __forceinline__ void first(const Unit& unit) { unit_ = unit; }
  __device__ __forceinline__ void next(const Unit& unit) {
#pragma unroll
    for (int w = 0; w < 2; ++w) unit_.words[w] = combine_bytes<type, op>(unit_.words[w], unit.words[w]);
  }
  __device__ __forceinline__ Unit result(std::uint32_t /*averaged*/) const { return unit_; }

 private:
  Unit unit_;
};

/// Contributions to whole units, by rank, and then their result in the place of the first.
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

/// Calls `function.template operator()<type, op>()` with those of an operation that is_piped_reduction(), but for sums
/// of types that have kernels of their own.
template <class F>
__device__ __forceinline__ void visit_reduction(DataType type, ReduceOp op, F&& function) {
  spec::visit(type, [&]<DataType t>() {
    switch (op) {
      case ReduceOp::prod:
        return function.template operator()<t, ReduceOp::prod>();
      case ReduceOp::min:
        return function.template operator()<t, ReduceOp::min>();
      case ReduceOp::max:
        return function.template operator()<t, ReduceOp::max>();
      case ReduceOp::avg:
        return function.template operator()<t, ReduceOp::avg>();
      default:
        if constexpr (kernel_type(t) == KernelType::others) function.template operator()<t, ReduceOp::sum>();
    }
  });
}

/// What it needs comes and stays in registers: of the memory of threads, an SM whose shared memory is all in use caches
/// next to nothing. (A template only so that a header may hold it.)
template <class Units = UnitsOfPart>
STRAIT_NOINLINE __device__ void reduce_units(Units units, DataType type, ReduceOp op, std::uint32_t averaged,
                                             std::uint32_t thread, std::uint32_t threads) {
  visit_reduction(type, op, [&]<DataType t, ReduceOp o>() { reduce_units<t, o>(units, averaged, thread, threads); });
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

/// What adders of a kernel are to do.
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
