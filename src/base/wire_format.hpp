#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/reduce_spec.hpp"
#include "base/types.hpp"

/// The wire formats: what floats become for their way between ranks, where the user asks for it. The specification in
/// docs/wire-formats.md as code, for the host and for CUDA device code: the vector kernels of
/// executor/host/quantize.hpp agree with it bit by bit.
///
/// A block of 128 elements becomes a payload of codes and one scale, a float: an element's value is code * scale. A run
/// of blocks is encoded as the payloads of all its blocks, then the scales of all its blocks. Where elements run out
/// within the last block, zeros fill it up.
namespace strait {

/// Values are those of straitWireFormat_t, less one.
enum class WireFormat : std::uint8_t {
  off = 0,   ///< elements travel as they are
  int8 = 1,  ///< whole numbers from -127 to 127
  fp8 = 2,   ///< float8_e4m3
  int4 = 3,  ///< whole numbers from -7 to 7, two a byte
};
inline constexpr int wire_format_count = 4;

constexpr std::string_view name(WireFormat format) {
  constexpr std::string_view names[wire_format_count] = {"off", "int8", "fp8", "int4"};
  return names[static_cast<int>(format)];
}

namespace wire {

inline constexpr std::size_t block_elements = 128;

STRAIT_HOST_DEVICE constexpr std::size_t payload_bytes(WireFormat format) {
  return format == WireFormat::int4 ? block_elements / 2 : block_elements;
}
STRAIT_HOST_DEVICE constexpr std::size_t block_bytes(WireFormat format) {
  return payload_bytes(format) + sizeof(float);
}
STRAIT_HOST_DEVICE constexpr std::size_t blocks_of(std::size_t elements) {
  return elements / block_elements + (elements % block_elements != 0 ? 1 : 0);
}

/// The shortest runs that are whole granules of 16 bytes.
inline constexpr std::uint32_t granular_run_blocks = 4;
STRAIT_HOST_DEVICE constexpr std::uint32_t granular_run_bytes(WireFormat format) {
  return granular_run_blocks * static_cast<std::uint32_t>(block_bytes(format));
}
inline constexpr std::uint32_t granular_run_elements = granular_run_blocks * block_elements;

/// The elements that the formats are defined for.
constexpr bool is_wire_type(DataType type) {
  return type == DataType::float32 || type == DataType::bfloat16 || type == DataType::float16;
}
/// The reductions whose partial results may be rounded on their way: sums, and what is made of sums.
constexpr bool is_wire_op(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}
constexpr bool is_wire_collective(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::all_gather ||
         c == Collective::all_to_all;
}

/// The code of the largest magnitude of a block.
template <WireFormat format>
inline constexpr float largest_code = 0;
template <>
inline constexpr float largest_code<WireFormat::int8> = 127;
template <>
inline constexpr float largest_code<WireFormat::fp8> = 448;
template <>
inline constexpr float largest_code<WireFormat::int4> = 7;

/// float's smallest normal number: so neither a scale nor its inverse is ever subnormal or infinite.
inline constexpr float smallest_scale = 0x1p-126F;
/// Added to a magnitude below 2^22, it leaves the nearest whole number (ties to even), in two's complement, in the low
/// bits.
inline constexpr float rounder = 0x1.8p23F;

/// The scale of a block, of the largest of its elements' magnitudes (bits of floats without their signs, compared as
/// integers). One element that is infinite or NaN makes it NaN, and with it every element of the block.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr float scale_of(std::uint32_t largest_magnitude_bits) {
  if (largest_magnitude_bits >= FloatFormat<float>::infinity) return canonical_nan<float>();
  const float scale = spec::detail::divide(from_bits<float>(largest_magnitude_bits), largest_code<format>);
  if (scale < smallest_scale) return smallest_scale;
  // Rounded up, the scale of float's largest numbers would give back infinity.
  const bool overflows = to_bits(spec::detail::multiply(scale, largest_code<format>)) == FloatFormat<float>::infinity;
  return from_bits<float>(to_bits(scale) - (overflows ? 1 : 0));
}

/// What elements are multiplied by to become codes; 0 for a block that is NaN, whose codes are 0.
STRAIT_HOST_DEVICE inline float inverse_of(float scale) {
  return is_nan(scale) ? 0 : spec::detail::divide(1.0F, scale);
}

/// The code of one element, in the low bits; of a block whose scale is a number.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr std::uint8_t code_of(float element, float inverse) {
  const float scaled = spec::detail::multiply(element, inverse);
  if constexpr (format == WireFormat::fp8) return from_float<Float8E4M3>(scaled).bits;
  const std::uint32_t whole = to_bits(spec::detail::add(scaled, rounder));
  return static_cast<std::uint8_t>(format == WireFormat::int4 ? whole & 0xfu : whole & 0xffu);
}

/// The value of a code, but of a scale that is NaN any NaN.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr float inner_value_of(std::uint8_t code, float scale) {
  float value = 0;
  if constexpr (format == WireFormat::fp8) value = to_float(Float8E4M3{code});
  if constexpr (format == WireFormat::int8) value = static_cast<float>(static_cast<std::int8_t>(code));
  if constexpr (format == WireFormat::int4) value = static_cast<float>(static_cast<int>(code ^ 8u) - 8);
  return spec::detail::multiply(value, scale);
}
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr float value_of(std::uint8_t code, float scale) {
  return spec::store_wide(inner_value_of<format>(code, scale));
}

/// Byte i of an int4 payload holds element i in its low half and element i + 64 in its high half, so that neighbouring
/// bytes hold neighbouring elements.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr std::uint8_t code_at(const std::uint8_t* payload, std::size_t element) {
  if constexpr (format != WireFormat::int4) return payload[element];
  constexpr std::size_t half = block_elements / 2;
  return element < half ? payload[element] & 0xf : payload[element - half] >> 4;
}

/// One block: 128 values to its payload and scale.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr void encode_block(const float* values, std::uint8_t* payload, float* scale) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < block_elements; ++i) {
    const std::uint32_t magnitude = to_bits(values[i]) & FloatFormat<float>::magnitude_mask;
    if (magnitude > largest) largest = magnitude;
  }
  *scale = scale_of<format>(largest);
  const float inverse = inverse_of(*scale);
  for (std::size_t i = 0; i < payload_bytes(format); ++i) {
    payload[i] = 0;
    if (is_nan(*scale)) continue;
    payload[i] = code_of<format>(values[i], inverse);
    if constexpr (format == WireFormat::int4)
      payload[i] |= static_cast<std::uint8_t>(code_of<format>(values[i + block_elements / 2], inverse) << 4);
  }
}

/// One block: its payload and scale to 128 values.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr void decode_block(const std::uint8_t* payload, float scale, float* values) {
  for (std::size_t i = 0; i < block_elements; ++i) values[i] = value_of<format>(code_at<format>(payload, i), scale);
}

}  // namespace wire
}  // namespace strait
