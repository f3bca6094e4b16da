#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic.cuh"
#include "kernels/byte_words.cuh"
#include "kernels/primitives.cuh"

/// Sums of granules with the same bits as in arithmetic.cuh, in fewer instructions. Elements of 16 bits are widened and
/// rounded in pairs, and bytes in words. NaN, which is rare, is looked for in all results together and only then made
/// canonical.
namespace strait::kernels {

struct Words {
  std::uint32_t values[4];
};
struct FloatPair {
  float low, high;
};

#ifndef STRAIT_EMULATED_GPU
template <DataType type>
__device__ __forceinline__ FloatPair widen_pair(std::uint32_t pair) {
  if constexpr (type == DataType::bfloat16)
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  else
    return {__half2float(__ushort_as_half(static_cast<unsigned short>(pair))),
            __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)))};
}
/// A NaN becomes some NaN.
template <DataType type>
__device__ __forceinline__ std::uint32_t round_pair(const FloatPair& pair) {
  std::uint32_t bits;
  if constexpr (type == DataType::bfloat16) {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(pair.low, pair.high);
    memcpy(&bits, &rounded, sizeof bits);
  } else {
    const __half2 rounded = __floats2half2_rn(pair.low, pair.high);
    memcpy(&bits, &rounded, sizeof bits);
  }
  return bits;
}
#else
template <DataType type>
FloatPair widen_pair(std::uint32_t pair) {
  using Element = spec::ElementType<type>;
  return {spec::load<type>(Element{static_cast<std::uint16_t>(pair)}),
          spec::load<type>(Element{static_cast<std::uint16_t>(pair >> 16)})};
}
/// Makes a NaN that is not the canonical one, as the GPU does.
template <DataType type>
std::uint32_t round_pair(const FloatPair& pair) {
  const auto round = [](float value) { return std::isnan(value) ? 0x7fffu : spec::store<type>(value).bits; };
  return round(pair.low) | round(pair.high) << 16;
}
#endif

/// Compiles to one instruction, which compares both values.
template <class T>
__device__ __forceinline__ bool is_any_nan(T a, T b) {
  return !(a < b) && !(a >= b);
}

/// A sum in progress over one granule after another.
template <DataType type>
class PairSum {
  using Accumulator = std::conditional_t<is_integer8<type>, std::uint32_t, spec::AccumulatorType<type>>;
  static constexpr int count = is_integer8<type> ? 4 : elements_per_granule<type>;
  static constexpr bool is_narrow = sizeof(spec::ElementType<type>) == 2;
  static constexpr bool is_floating = spec::detail::is_floating_accumulator<Accumulator>;

 public:
  __device__ __forceinline__ void first(const Granule& granule) { widened(granule, values_); }
  __device__ __forceinline__ void next(const Granule& granule) {
    Accumulator others[count];
    widened(granule, others);
#pragma unroll
    for (int e = 0; e < count; ++e) values_[e] = add(values_[e], others[e]);
  }
  /// Returns the sum as it is, for types that are accumulated as themselves. NaN need not be canonical.
  __device__ __forceinline__ Granule partial() const {
    static_assert(count * sizeof(Accumulator) == sizeof(Granule));
    Elements elements;
#pragma unroll
    for (int e = 0; e < count; ++e) elements.values[e] = values_[e];
    return __builtin_bit_cast(Granule, elements);
  }
  /// Returns the sum times `scale`, which applies only to floats. Sets `has_nan` if the result contains a NaN, which
  /// then need not be canonical.
  __device__ __forceinline__ Granule result(float scale, bool& has_nan) {
    if constexpr (is_floating) {
#pragma unroll
      for (int e = 0; e < count; ++e) values_[e] = spec::detail::multiply(values_[e], static_cast<Accumulator>(scale));
    }
    if constexpr (is_floating && !is_float8<type>) {
#pragma unroll
      for (int e = 0; e < count; e += 2) has_nan |= is_any_nan(values_[e], values_[e + 1]);
    }
    if constexpr (is_float8<type>) {
      return narrow<type, Granule>(values_);
    } else if constexpr (is_narrow) {
      Words words;
#pragma unroll
      for (int w = 0; w < 4; ++w) words.values[w] = round_pair<type>({values_[2 * w], values_[2 * w + 1]});
      return __builtin_bit_cast(Granule, words);
    } else {
      return partial();
    }
  }

 private:
  struct Elements {
    Accumulator values[count];
  };
  static __device__ __forceinline__ Accumulator add(Accumulator a, Accumulator b) {
    if constexpr (is_integer8<type>)
      return add_bytes(a, b);
    else
      return spec::detail::add(a, b);
  }
  static __device__ __forceinline__ void widened(const Granule& granule, Accumulator (&values)[count]) {
    if constexpr (is_float8<type>) {
      widen<type>(granule, values);
    } else if constexpr (is_narrow) {
      const Words words = __builtin_bit_cast(Words, granule);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const FloatPair pair = widen_pair<type>(words.values[w]);
        values[2 * w] = pair.low;
        values[2 * w + 1] = pair.high;
      }
    } else {
      const Elements elements = __builtin_bit_cast(Elements, granule);
#pragma unroll
      for (int e = 0; e < count; ++e) values[e] = elements.values[e];
    }
  }
  Accumulator values_[count];
};

/// Returns the granule as it is to be stored. Bytes need no change.
template <DataType type>
__device__ __forceinline__ Granule with_canonical_nan(const Granule& granule) {
  using Accumulator = spec::AccumulatorType<type>;
  if constexpr (sizeof(spec::ElementType<type>) == 1) {
    return granule;
  } else if constexpr (sizeof(spec::ElementType<type>) < sizeof(Accumulator)) {
    using Format = FloatFormat<spec::ElementType<type>>;
    Words words = __builtin_bit_cast(Words, granule);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      std::uint32_t result = 0;
#pragma unroll
      for (int shift = 0; shift < 32; shift += 16) {
        const std::uint32_t element = words.values[w] >> shift & 0xffffu;
        const bool is_nan = (element & Format::magnitude_mask) >= Format::first_nan;
        result |= (is_nan ? Format::canonical_nan : element) << shift;
      }
      words.values[w] = result;
    }
    return __builtin_bit_cast(Granule, words);
  } else {
    struct Elements {
      Accumulator values[elements_per_granule<type>];
    };
    Elements elements = __builtin_bit_cast(Elements, granule);
#pragma unroll
    for (auto& value : elements.values) value = spec::store_wide(value);
    return __builtin_bit_cast(Granule, elements);
  }
}

/// Returns a contribution to premul_sum, for the types that are accumulated as floats: its product with this rank's
/// scalar. NaN need not be canonical, because the product is added to others.
template <DataType type>
__device__ __forceinline__ Granule premultiplied(const Granule& granule, float scalar) {
  PairSum<type> product;
  product.first(granule);
  bool has_nan = false;
  return product.result(scalar, has_nan);
}
template <DataType type>
__device__ __forceinline__ float scalar_of(const Operation& operation) {
  return load_element<type>(element_of<type>(operation.premul_scalar));
}

/// Returns whether the sums of this file implement an operation (see adds_up()), and sets the scale of the result.
template <DataType type>
__device__ __forceinline__ bool is_pair_sum(const Operation& operation, float& scale) {
  scale = operation.op == ReduceOp::avg ? 1 / static_cast<float>(operation.averaged) : 1;
  return adds_up(type, operation.op, operation.averaged);
}

/// Calls `function.template operator()<t>()`, where t is the sum_type() of `type`, one of other_types.
template <class F>
__device__ __forceinline__ void visit_sums(DataType type, F&& function) {
  switch (sum_type(type)) {
    case DataType::int8:
      return function.template operator()<DataType::int8>();
    case DataType::int32:
      return function.template operator()<DataType::int32>();
    case DataType::int64:
      return function.template operator()<DataType::int64>();
    case DataType::float64:
      return function.template operator()<DataType::float64>();
    case DataType::float8_e4m3:
      return function.template operator()<DataType::float8_e4m3>();
    default:
      return function.template operator()<DataType::float8_e5m2>();
  }
}

/// Calls `sum.template operator()<t>(scale)` if is_pair_sum() holds. Otherwise returns false and does nothing.
template <DataType type, class Sum>
__device__ __forceinline__ bool with_pair_sum(const Operation& operation, Sum&& sum) {
  if constexpr (type == other_types) {
    bool is_sum = false;
    visit_sums(operation.type, [&]<DataType t>() { is_sum = with_pair_sum<t>(operation, sum); });
    return is_sum;
  } else {
    float scale = 1;
    if (!is_pair_sum<type>(operation, scale)) return false;
    sum.template operator()<type>(scale);
    return true;
  }
}

}  // namespace strait::kernels
