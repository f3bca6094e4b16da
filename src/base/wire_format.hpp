#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/reduce_spec.hpp"
#include "base/types.hpp"

/// The wire formats: how floats are encoded between ranks if the user asks for it. The specification in
/// docs/wire-formats.md as code, for host and CUDA device code. The vector kernels of executor/host/quantize.hpp agree
/// with it bit by bit.
///
/// A block of 128 elements is encoded as a payload of codes and one scale, a float: the value of an element is code *
/// scale. A run of blocks is encoded as the payloads of all its blocks, followed by the scales of all its blocks. If
/// the elements end within the last block, it is filled up with zeros.
namespace strait {

/// The values are those of straitWireFormat_t, minus one.
enum class WireFormat : std::uint8_t {
  off = 0,   ///< elements are sent unencoded
  int8 = 1,  ///< whole numbers from -127 to 127
  fp8 = 2,   ///< float8_e4m3
  int4 = 3,  ///< whole numbers from -7 to 7, two in a byte
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

/// The number of blocks of the shortest run whose encoding is a multiple of 16 bytes in every format.
inline constexpr std::uint32_t granular_run_blocks = 4;
STRAIT_HOST_DEVICE constexpr std::uint32_t granular_run_bytes(WireFormat format) {
  return granular_run_blocks * static_cast<std::uint32_t>(block_bytes(format));
}
inline constexpr std::uint32_t granular_run_elements = granular_run_blocks * block_elements;

/// Whether the formats are defined for elements of this type.
constexpr bool is_wire_type(DataType type) {
  return type == DataType::float32 || type == DataType::bfloat16 || type == DataType::float16;
}
/// Whether partial results of this reduction may be rounded between ranks: sums, and operations that consist of sums.
constexpr bool is_wire_op(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}
constexpr bool is_wire_collective(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::all_gather ||
         c == Collective::all_to_all;
}
/// Returns why such a call cannot have a wire format; "" if it can. `op`: of a reduction.
std::string problem(Collective collective, DataType type, ReduceOp op);

/// The code of the element with the largest magnitude in a block.
template <WireFormat format>
inline constexpr float largest_code = 0;
template <>
inline constexpr float largest_code<WireFormat::int8> = 127;
template <>
inline constexpr float largest_code<WireFormat::fp8> = 448;
template <>
inline constexpr float largest_code<WireFormat::int4> = 7;

/// The smallest normal number of float. With it as the lower bound, neither a scale nor its inverse is ever subnormal
/// or infinite.
inline constexpr float smallest_scale = 0x1p-126F;
/// Added to a float of magnitude below 2^22, this leaves the nearest whole number (ties to even) in two's complement in
/// the low bits of the sum.
inline constexpr float rounder = 0x1.8p23F;

/// Returns the scale of a block, given the largest magnitude of its elements (bits of floats without the sign, compared
/// as integers). If one element is infinite or NaN, the scale is NaN, and so is every element of the decoded block.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr float scale_of(std::uint32_t largest_magnitude_bits) {
  if (largest_magnitude_bits >= FloatFormat<float>::infinity) return canonical_nan<float>();
  const float scale = spec::detail::divide(from_bits<float>(largest_magnitude_bits), largest_code<format>);
  if (scale < smallest_scale) return smallest_scale;
  // If the division has rounded up, the largest floats would decode to infinity: take the next smaller scale.
  const bool overflows = to_bits(spec::detail::multiply(scale, largest_code<format>)) == FloatFormat<float>::infinity;
  return from_bits<float>(to_bits(scale) - (overflows ? 1 : 0));
}

/// Returns the factor that turns elements into codes; 0 for a block whose scale is NaN, so that its codes are 0.
STRAIT_HOST_DEVICE inline float inverse_of(float scale) {
  return is_nan(scale) ? 0 : spec::detail::divide(1.0F, scale);
}

/// Returns the code of one element in the low bits. The scale of the block must not be NaN.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr std::uint8_t code_of(float element, float inverse) {
  const float scaled = spec::detail::multiply(element, inverse);
  if constexpr (format == WireFormat::fp8) return from_float<Float8E4M3>(scaled).bits;
  const std::uint32_t whole = to_bits(spec::detail::add(scaled, rounder));
  return static_cast<std::uint8_t>(format == WireFormat::int4 ? whole & 0xfu : whole & 0xffu);
}

/// Returns the value of a code. If the scale is NaN, this may be any NaN; value_of() returns the canonical one.
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

/// Returns the code of an element. Byte i of an int4 payload holds element i in its low half and element i + 64 in its
/// high half, so that neighbouring bytes hold neighbouring elements.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr std::uint8_t code_at(const std::uint8_t* payload, std::size_t element) {
  if constexpr (format != WireFormat::int4) return payload[element];
  constexpr std::size_t half = block_elements / 2;
  return element < half ? payload[element] & 0xf : payload[element - half] >> 4;
}

/// Encodes one block: 128 values into its payload and scale.
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

/// Decodes one block: its payload and scale into 128 values.
template <WireFormat format>
STRAIT_HOST_DEVICE constexpr void decode_block(const std::uint8_t* payload, float scale, float* values) {
  for (std::size_t i = 0; i < block_elements; ++i) values[i] = value_of<format>(code_at<format>(payload, i), scale);
}

}  // namespace wire
}  // namespace strait
