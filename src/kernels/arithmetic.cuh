#pragma once

#include <cstdint>

#include "base/reduce_spec.hpp"
#include "kernels/kernel_type.hpp"
#ifndef STRAIT_EMULATED_GPU
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/// The arithmetic of base/reduce_spec.hpp on 16 bytes of elements at a time, in the GPU's instructions.
namespace strait::kernels {

template <DataType type>
inline constexpr int elements_per_granule = static_cast<int>(16 / sizeof(spec::ElementType<type>));

#ifndef STRAIT_EMULATED_GPU
/// The conversions that the GPU has instructions for. Inner NaN payloads may differ from the specification's; what
/// leaves (narrow) is the canonical NaN.
template <DataType type>
__device__ __forceinline__ spec::AccumulatorType<type> load_element(const spec::ElementType<type>& element) {
  if constexpr (type == DataType::bfloat16) {
    return __uint_as_float(std::uint32_t{element.bits} << 16);
  } else if constexpr (type == DataType::float16) {
    return __half2float(__ushort_as_half(element.bits));
  } else {
    return spec::load<type>(element);
  }
}
template <DataType type>
__device__ __forceinline__ spec::ElementType<type> store_element(const spec::AccumulatorType<type>& value) {
  spec::ElementType<type> element;
  if constexpr (type == DataType::bfloat16) {
    element.bits =
        isnan(value) ? FloatFormat<BFloat16>::canonical_nan : __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else if constexpr (type == DataType::float16) {
    element.bits = isnan(value) ? FloatFormat<Float16>::canonical_nan : __half_as_ushort(__float2half_rn(value));
  } else {
    element = spec::store<type>(value);
  }
  return element;
}
#else
template <DataType type>
auto load_element(const spec::ElementType<type>& element) {
  return spec::load<type>(element);
}
template <DataType type>
auto store_element(const spec::AccumulatorType<type>& value) {
  return spec::store<type>(value);
}
#endif

template <DataType type, class Bits16>
__device__ __forceinline__ void widen(const Bits16& bits,
                                      spec::AccumulatorType<type> (&values)[elements_per_granule<type>]) {
  struct Elements {
    spec::ElementType<type> values[elements_per_granule<type>];
  };
  const Elements elements = __builtin_bit_cast(Elements, bits);
#pragma unroll
  for (int e = 0; e < elements_per_granule<type>; ++e) values[e] = load_element<type>(elements.values[e]);
}

template <DataType type, class Bits16>
__device__ __forceinline__ Bits16 narrow(const spec::AccumulatorType<type> (&values)[elements_per_granule<type>]) {
  struct Elements {
    spec::ElementType<type> values[elements_per_granule<type>];
  } elements;
#pragma unroll
  for (int e = 0; e < elements_per_granule<type>; ++e) elements.values[e] = store_element<type>(values[e]);
  return __builtin_bit_cast(Bits16, elements);
}

/// As narrow(), of floats none of which is NaN.
template <DataType type, class Bits16>
__device__ __forceinline__ Bits16 narrow_numbers(const float (&values)[elements_per_granule<type>]) {
#ifndef STRAIT_EMULATED_GPU
  struct Words {
    std::uint32_t values[4];
  } words;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (type == DataType::bfloat16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * w], values[2 * w + 1]);
      words.values[w] = *reinterpret_cast<const std::uint32_t*>(&pair);
    } else if constexpr (type == DataType::float16) {
      const __half2 pair = __floats2half2_rn(values[2 * w], values[2 * w + 1]);
      words.values[w] = *reinterpret_cast<const std::uint32_t*>(&pair);
    } else {
      words.values[w] = __float_as_uint(values[w]);
    }
  }
  return __builtin_bit_cast(Bits16, words);
#else
  return narrow<type, Bits16>(values);
#endif
}

/// Which operation, where the kernel does not know when it is compiled.
struct Operation {
  ReduceOp op;
  DataType type;
  std::uint32_t averaged;  ///< contributions, which an average divides by
  PremulScalar premul_scalar;
};

template <DataType type>
__device__ __forceinline__ spec::ElementType<type> element_of(const PremulScalar& scalar) {
  if (scalar.is_address) return *reinterpret_cast<const spec::ElementType<type>*>(scalar.bits);
  spec::ElementType<type> element;
  memcpy(&element, &scalar.bits, sizeof element);
  return element;
}

template <class Bits16>
__device__ Bits16 contribution_of_others(const Bits16& bits, const Operation& operation);  // other_types.cuh

/// What a rank contributes of its input: all but premul_sum take it as it is, which multiplies by this rank's scalar.
template <DataType type, bool sum_only, class Bits16>
__device__ __forceinline__ Bits16 contribution(const Bits16& bits, const Operation& operation) {
  if (sum_only || operation.op != ReduceOp::premul_sum) return bits;
  if constexpr (type == other_types) {
    return contribution_of_others(bits, operation);
  } else {
    constexpr int count = elements_per_granule<type>;
    const auto scalar = spec::load<type>(element_of<type>(operation.premul_scalar));
    spec::AccumulatorType<type> values[count];
    widen<type>(bits, values);
#pragma unroll
    for (int e = 0; e < count; ++e) values[e] = spec::detail::multiply(values[e], scalar);
    return narrow<type, Bits16>(values);
  }
}

/// A reduction in progress over one granule. `sum_only`: nothing but ReduceOp::sum, which most calls are. Of
/// other_types: other_types.cuh.
template <DataType type, bool sum_only, class Bits16>
class Reduction {
  using Accumulator = spec::AccumulatorType<type>;
  static constexpr int count = elements_per_granule<type>;

 public:
  __device__ __forceinline__ void first(const Bits16& bits, const Operation& /*operation*/) {
    widen<type>(bits, values_);
  }
  __device__ __forceinline__ void next(const Bits16& bits, const Operation& operation) {
    Accumulator others[count];
    widen<type>(bits, others);
    if constexpr (sum_only) {
      combine<ReduceOp::sum>(others);
    } else {
      switch (operation.op) {
        case ReduceOp::prod:
          return combine<ReduceOp::prod>(others);
        case ReduceOp::min:
          return combine<ReduceOp::min>(others);
        case ReduceOp::max:
          return combine<ReduceOp::max>(others);
        default:
          return combine<ReduceOp::sum>(others);
      }
    }
  }
  __device__ __forceinline__ Bits16 result(const Operation& operation) {
    if constexpr (!sum_only) {
      if (operation.op == ReduceOp::avg) {
#pragma unroll
        for (int e = 0; e < count; ++e) values_[e] = spec::finish<ReduceOp::avg>(values_[e], operation.averaged);
      }
    }
    if constexpr (sum_only && (type == DataType::bfloat16 || type == DataType::float16)) {
      bool has_nan = false;
#pragma unroll
      for (int e = 0; e < count; ++e) has_nan |= values_[e] != values_[e];
      if (!has_nan) return narrow_numbers<type, Bits16>(values_);
    }
    return narrow<type, Bits16>(values_);
  }
  /// Of a sum, what changes nothing that it is added to: of floats minus zero, for zero would take its sign.
  static __device__ __forceinline__ Bits16 neutral() {
    using Element = spec::ElementType<type>;
    constexpr std::uint64_t sign = std::is_integral_v<Element> ? 0 : std::uint64_t{1} << (8 * sizeof(Element) - 1);
    constexpr std::uint64_t word = sizeof(Element) == 8   ? sign
                                   : sizeof(Element) == 4 ? sign * 0x0000000100000001
                                   : sizeof(Element) == 2 ? sign * 0x0001000100010001
                                                          : sign * 0x0101010101010101;
    return {word, word};
  }

 private:
  template <ReduceOp op>
  __device__ __forceinline__ void combine(const Accumulator (&others)[count]) {
#pragma unroll
    for (int e = 0; e < count; ++e) values_[e] = spec::combine<op>(values_[e], others[e]);
  }
  Accumulator values_[count];
};

}  // namespace strait::kernels
