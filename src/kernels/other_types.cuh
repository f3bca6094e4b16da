#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/pair_arithmetic.cuh"
#include "kernels/primitives.cuh"

/// Reductions of the types that share kernels (other_types). Operations other than sums are not inlined, so that nine
/// types take little code.
namespace strait::kernels {

namespace others {

template <DataType type>
struct GranuleOf {
  spec::ElementType<type> values[elements_per_granule<type>];
};

/// Calls `change.template operator()<type>(elements)` with the elements of a granule, and returns the result.
template <class Bits16, class Change>
__device__ __forceinline__ Bits16 changed(DataType type, Bits16 bits, Change&& change) {
  spec::visit(type, [&]<DataType t>() {
    if constexpr (kernel_type(t) == KernelType::others) {
      auto elements = __builtin_bit_cast(GranuleOf<t>, bits);
      change.template operator()<t>(elements);
      bits = __builtin_bit_cast(Bits16, elements);
    }
  });
  return bits;
}

/// Calls `function(combine)`, where `combine` combines two values.
template <class F>
__device__ __forceinline__ void with_combine(ReduceOp op, F&& function) {
  if (op == ReduceOp::prod)
    function([](auto a, auto b) { return spec::combine<ReduceOp::prod>(a, b); });
  else if (op == ReduceOp::min)
    function([](auto a, auto b) { return spec::combine<ReduceOp::min>(a, b); });
  else
    function([](auto a, auto b) { return spec::combine<ReduceOp::max>(a, b); });
}

__device__ __forceinline__ bool adds(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}

/// Combines all types except 8-bit floats. Values are passed in registers: the time is that of what a thread does
/// sequentially.
template <class Bits16>
STRAIT_NOINLINE __device__ Bits16 combined(DataType type, ReduceOp op, Bits16 a, Bits16 b) {
  return changed(type, a, [&]<DataType t>(GranuleOf<t>& elements) {
    if constexpr (!is_float8<t>) {
      const auto others = __builtin_bit_cast(GranuleOf<t>, b);
      with_combine(op, [&](auto&& combine) {
#pragma unroll
        for (int e = 0; e < elements_per_granule<t>; ++e)
          elements.values[e] = combine(elements.values[e], others.values[e]);
      });
    }
  });
}
template <class Bits16>
STRAIT_NOINLINE __device__ Bits16 divided(DataType type, Bits16 sum, std::uint32_t averaged) {
  return changed(type, sum, [&]<DataType t>(GranuleOf<t>& elements) {
    if constexpr (!is_float8<t>) divide(elements.values, averaged);
  });
}

template <class Bits16>
STRAIT_NOINLINE __device__ Bits16 premultiplied(Bits16 bits, const Operation& operation) {
  return changed(operation.type, bits, [&]<DataType t>(GranuleOf<t>& elements) {
    const auto scalar = element_of<t>(operation.premul_scalar);
#pragma unroll 1
    for (auto& element : elements.values) element = spec::premultiplied<t>(element, scalar);
  });
}

}  // namespace others

/// For any operation, whatever `sum_only` is. Accumulators stay in registers: 8-bit floats are accumulated as floats,
/// all other types as themselves.
template <bool sum_only, class Bits16>
class Reduction<other_types, sum_only, Bits16> {
 public:
  __device__ __forceinline__ void first(const Bits16& bits, const Operation& operation) {
    if (!visit_float8(operation.type, [&]<DataType t>() { widen<t>(bits, wide_.values); })) value_ = bits;
  }
  __device__ __forceinline__ void next(const Bits16& bits, const Operation& operation) {
    if (!others::adds(operation.op)) return combine(bits, operation);
    visit_sums(operation.type, [&]<DataType t>() {
      if constexpr (is_float8<t>) {
        Wide others;
        widen<t>(bits, others.values);
#pragma unroll
        for (int e = 0; e < 16; ++e) wide_.values[e] = spec::detail::add(wide_.values[e], others.values[e]);
      } else {
        PairSum<t> sum;
        sum.first(value_);
        sum.next(bits);
        value_ = sum.partial();
      }
    });
  }
  __device__ __forceinline__ Bits16 result(const Operation& operation) {
    if (operation.op == ReduceOp::avg) divide(operation);
    if (visit_float8(operation.type, [&]<DataType t>() { value_ = narrow<t, Bits16>(wide_.values); })) return value_;
    return operation.type == DataType::float64 ? with_canonical_nan<DataType::float64>(value_) : value_;
  }

 private:
  struct Wide {
    float values[16];
  };
  __device__ __forceinline__ void combine(const Bits16& bits, const Operation& operation) {
    Wide others;
    if (visit_float8(operation.type, [&]<DataType t>() { widen<t>(bits, others.values); })) {
#pragma unroll
      for (int w = 0; w < 4; ++w) put(w, combined(operation.op, get(wide_, w), get(others, w)));
    } else {
      value_ = others::combined(operation.type, operation.op, value_, bits);
    }
  }
  __device__ __forceinline__ void divide(const Operation& operation) {
    if (is_one_of_float8(operation.type)) {
#pragma unroll
      for (int w = 0; w < 4; ++w) put(w, divided(get(wide_, w), operation.averaged));
    } else {
      value_ = others::divided(operation.type, value_, operation.averaged);
    }
  }
  /// Four elements at a time, which are passed in registers.
  struct Quad {
    float values[4];
  };
  static STRAIT_NOINLINE __device__ Quad combined(ReduceOp op, Quad a, Quad b) {
    others::with_combine(op, [&](auto&& combine) {
#pragma unroll
      for (int e = 0; e < 4; ++e) a.values[e] = combine(a.values[e], b.values[e]);
    });
    return a;
  }
  static STRAIT_NOINLINE __device__ Quad divided(Quad sum, std::uint32_t averaged) {
    kernels::divide(sum.values, averaged);
    return sum;
  }
  static __device__ __forceinline__ Quad get(const Wide& wide, int w) {
    const float* const v = wide.values + 4 * w;
    return {{v[0], v[1], v[2], v[3]}};
  }
  __device__ __forceinline__ void put(int w, const Quad& quad) {
#pragma unroll
    for (int e = 0; e < 4; ++e) wide_.values[4 * w + e] = quad.values[e];
  }

  Bits16 value_;
  Wide wide_;
};

/// As contribution(), for premul_sum.
template <class Bits16>
__device__ Bits16 contribution_of_others(const Bits16& bits, const Operation& operation) {
  return others::premultiplied(bits, operation);
}

}  // namespace strait::kernels
