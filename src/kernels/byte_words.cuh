#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/primitives.cuh"

/// Elements of 8 bits, four in a word.
namespace strait::kernels {

__device__ constexpr bool is_one_of_float8(DataType type) {
  return type == DataType::float8_e4m3 || type == DataType::float8_e5m2;
}
template <DataType type>
inline constexpr bool is_float8 = is_one_of_float8(type);
/// Calls `function.template operator()<type>()` if it is one of them. False: it is not.
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

/// Integers, each of which wraps by itself.
__device__ __forceinline__ std::uint32_t add_bytes(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t signs = 0x80808080;
  return ((a & ~signs) + (b & ~signs)) ^ ((a ^ b) & signs);
}

/// Floats, by way of float16: e5m2 is its upper byte, and e4m3 a part of its bits with another exponent. Of a NaN, any
/// NaN.
template <DataType type>
__device__ __forceinline__ void widen_bytes(std::uint32_t word, float (&values)[4]) {
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const std::uint32_t bytes = word >> 16 * pair;
    std::uint32_t halves = (bytes & 0xff) << 8 | (bytes & 0xff00) << 16;
    if constexpr (type == DataType::float8_e4m3) halves = (halves & 0x80008000) | (halves >> 1 & 0x3f803f80);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float value = load_element<DataType::float16>({static_cast<std::uint16_t>(halves >> 16 * e)});
      if constexpr (type == DataType::float8_e4m3) {
        constexpr float rebias = 256, of_nan = 480;
        value = spec::detail::multiply(value, rebias);
        if (value == of_nan || value == -of_nan) value = canonical_nan<float>();
      }
      values[2 * pair + e] = value;
    }
  }
}
/// Each rounded once, NaN canonical.
template <DataType type>
STRAIT_NOINLINE __device__ std::uint32_t round_bytes(float a, float b, float c, float d) {
  const auto bits = [](float value) { return std::uint32_t{store_element<type>(value).bits}; };
  return bits(a) | bits(b) << 8 | bits(c) << 16 | bits(d) << 24;
}

}  // namespace strait::kernels
