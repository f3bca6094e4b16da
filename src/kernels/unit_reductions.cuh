#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/byte_words.cuh"

/// Reductions of any type and operation except products with scalars, in units of a few elements.
namespace strait::kernels {

/// A reduction in progress over one unit, in general. A unit has at most eight elements, because adders have registers
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
/// For bytes, which are combined without conversion.
template <DataType type, ReduceOp op>
requires is_word_operation<type, op>
class UnitReduction<type, op> {
 public:
  struct alignas(8) Unit {  // aligned for a single access
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

/// Calls `function.template operator()<type, op>()` for an operation for which is_piped_reduction() holds.
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
        return function.template operator()<t, ReduceOp::sum>();
    }
  });
}

}  // namespace strait::kernels
