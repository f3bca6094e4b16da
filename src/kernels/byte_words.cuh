#pragma once

#include <cstdint>

#include "kernels/elements.cuh"
#include "kernels/primitives.cuh"

/// Arithmetic on elements of 8 bits, four in a word.
namespace strait::kernels {

__device__ constexpr bool is_one_of_float8(DataType type) {
  return type == DataType::float8_e4m3 || type == DataType::float8_e5m2;
}
template <DataType type>
inline constexpr bool is_float8 = is_one_of_float8(type);
/// Calls `function.template operator()<type>()` if `type` is one of the 8-bit floats; otherwise returns false.
template <class F>
__device__ __forceinline__ bool visit_float8(DataType type, F&& function) {
  if (type == DataType::float8_e4m3)
    function.template operator()<DataType::float8_e4m3>();
  else if (type == DataType::float8_e5m2)
    function.template operator()<DataType::float8_e5m2>();
  else
    return false;
  return true;
}

template <DataType type>
inline constexpr bool is_integer8 = type == DataType::int8 || type == DataType::uint8;

/// Adds integers, each of which wraps around by itself.
__device__ __forceinline__ std::uint32_t add_bytes(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t signs = 0x80808080;
  return ((a & ~signs) + (b & ~signs)) ^ ((a ^ b) & signs);
}

/// Returns the lesser or the greater of each two elements. It uses integer arithmetic on the whole word, which takes as
/// long as converting a single float.
template <DataType type, ReduceOp op>
__device__ __forceinline__ std::uint32_t extreme_bytes(std::uint32_t a, std::uint32_t b) {
  static_assert(sizeof(spec::ElementType<type>) == 1 && (op == ReduceOp::min || op == ReduceOp::max));
  constexpr std::uint32_t signs = 0x80808080, ones = 0x01010101;
  const auto mask_of = [](std::uint32_t sign) { return (sign << 1) - (sign >> 7); };  // masks of whole bytes
  std::uint32_t a_key = a, b_key = b;  // ordered like signed integers: -0 is less than 0
  if constexpr (is_float8<type>) {
    const auto key_of = [](std::uint32_t word) { return word ^ ((word & signs) - ((word & signs) >> 7)); };
    a_key = key_of(a);
    b_key = key_of(b);
  }
  const std::uint32_t difference = (a_key | signs) - (b_key & ~signs);
  const std::uint32_t other_sign = type == DataType::uint8 ? a_key & ~b_key : ~a_key & b_key;
  const std::uint32_t not_less = mask_of((other_sign | (~(a_key ^ b_key) & difference)) & signs);
  const std::uint32_t takes_a = op == ReduceOp::max ? not_less : ~not_less;
  const std::uint32_t result = (a & takes_a) | (b & ~takes_a);
  if constexpr (is_float8<type>) {
    using Format = FloatFormat<spec::ElementType<type>>;
    const auto nan_sign_of = [](std::uint32_t word) { return (word & ~signs) + (0x80 - Format::first_nan) * ones; };
    const std::uint32_t nan_signs = (nan_sign_of(a) | nan_sign_of(b)) & signs, are_nan = mask_of(nan_signs);
    return (result & ~are_nan) | (Format::canonical_nan * ones & are_nan);
  } else {
    return result;
  }
}

/// Operations that combine words directly, because partial results are elements of the type.
template <DataType type, ReduceOp op>
inline constexpr bool is_word_operation = sizeof(spec::ElementType<type>) == 1 &&
                                          (op == ReduceOp::min || op == ReduceOp::max ||
                                           (op == ReduceOp::sum && is_integer8<type>));
template <DataType type, ReduceOp op>
__device__ __forceinline__ std::uint32_t combine_bytes(std::uint32_t a, std::uint32_t b) {
  static_assert(is_word_operation<type, op>);
  if constexpr (op == ReduceOp::sum)
    return add_bytes(a, b);
  else
    return extreme_bytes<type, op>(a, b);
}

#if !defined(STRAIT_EMULATED_GPU) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define STRAIT_CONVERTS_FLOAT8  // with instructions for two values at a time
#endif

/// Converts two elements to float16, which can represent all of them. An e5m2 is the upper byte of a float16. The bits
/// of an e4m3 are part of a float16's with another exponent bias; the bias is left uncorrected unless the GPU has an
/// instruction for the conversion.
template <DataType type>
__device__ __forceinline__ std::uint32_t halves_of(std::uint32_t bytes) {
#ifdef STRAIT_CONVERTS_FLOAT8
  if constexpr (type == DataType::float8_e4m3) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(bytes)));
    return halves;
  }
#endif
  const std::uint32_t halves = (bytes & 0xff) << 8 | (bytes & 0xff00) << 16;
  return type == DataType::float8_e4m3 ? (halves & 0x80008000) | (halves >> 1 & 0x3f803f80) : halves;
}

/// Converts to floats. A NaN becomes some NaN.
template <DataType type>
__device__ __forceinline__ void widen_bytes(std::uint32_t word, float (&values)[4]) {
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const std::uint32_t halves = halves_of<type>(word >> 16 * pair);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float value = load_element<DataType::float16>({static_cast<std::uint16_t>(halves >> 16 * e)});
#ifndef STRAIT_CONVERTS_FLOAT8
      if constexpr (type == DataType::float8_e4m3) {
        constexpr float rebias = 256, of_nan = 480;
        value = spec::detail::multiply(value, rebias);
        if (value == of_nan || value == -of_nan) value = canonical_nan<float>();
      }
#endif
      values[2 * pair + e] = value;
    }
  }
}

/// Rounds each value once, and makes NaN canonical.
template <DataType type>
STRAIT_NOINLINE __device__ std::uint32_t round_any_bytes(float a, float b, float c, float d) {
  const auto bits = [](float value) { return std::uint32_t{store_element<type>(value).bits}; };
  return bits(a) | bits(b) << 8 | bits(c) << 16 | bits(d) << 24;
}
/// As round_any_bytes(). The GPU's instructions alone would turn what should be infinity into the greatest number, and
/// make another NaN.
template <DataType type>
__device__ __forceinline__ std::uint32_t round_bytes(float a, float b, float c, float d) {
#ifdef STRAIT_CONVERTS_FLOAT8
  constexpr bool is_e4m3 = type == DataType::float8_e4m3;
  // From here on values round to what is not a number; in e4m3 this value itself still is one.
  constexpr float least_rounded_up = is_e4m3 ? 464 : 61440;
  const auto is_number = [](float value) { return fabsf(value) < least_rounded_up; };
  if (is_number(a) && is_number(b) && is_number(c) && is_number(d)) {
    const auto round = [](float low, float high) {
      std::uint16_t pair;
      if constexpr (is_e4m3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
      else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
      return std::uint32_t{pair};
    };
    return round(a, b) | round(c, d) << 16;
  }
#endif
  return round_any_bytes<type>(a, b, c, d);
}

}  // namespace strait::kernels
