#pragma once

#include <cstddef>
#include <cstdint>

#include "base/wire_format.hpp"
#include "kernels/arithmetic.cuh"
#include "kernels/launch.hpp"
#include "kernels/user_bytes.cuh"

/// A wire format on the way from the user's memory into a slot, and back: a warp has a granular run of four blocks, in
/// a slot the codes of all four, and then their scales. Eight neighbouring threads share a block; each has sixteen
/// elements, whose codes are neighbours: a granule, or half of one.
namespace strait::kernels {

inline constexpr std::uint32_t lanes_of_block = 8;
inline constexpr int lane_elements = 16;
inline constexpr int lane_half = lane_elements / 2;

/// The codes of a thread's elements, and its block's scale.
template <WireFormat format>
struct LaneCodes {
  static constexpr int words = format == WireFormat::int4 ? 1 : 2;
  std::uint64_t bits[words];
  float scale;

  __device__ __forceinline__ void set(int element, std::uint8_t code) {
    const int half = element / lane_half, byte = 8 * (element % lane_half);
    if constexpr (words == 1)
      bits[0] |= std::uint64_t{code} << (byte + 4 * half);
    else
      bits[half] |= std::uint64_t{code} << byte;
  }
  __device__ __forceinline__ float value(int element) const {
    const int half = element / lane_half, byte = 8 * (element % lane_half);
    if constexpr (words == 1)
      return wire::value_of<format>(static_cast<std::uint8_t>(bits[0] >> (byte + 4 * half) & 0xf), scale);
    else
      return wire::value_of<format>(static_cast<std::uint8_t>(bits[half] >> byte & 0xff), scale);
  }
};

/// What this thread has of every run.
template <WireFormat format>
class RunLane {
 public:
  using Values = float[lane_elements];
  static constexpr std::uint32_t codes_bytes = wire::granular_run_blocks * wire::payload_bytes(format);
  static constexpr std::uint32_t run_bytes = wire::granular_run_bytes(format);

  __device__ RunLane() : lane_(threadIdx.x % 32) {}

  /// Of the run that begins at `elements`, of which `valid` elements exist; the rest are zeros.
  __device__ __forceinline__ void load(DataType type, const std::byte* elements, std::uint32_t valid,
                                       Values& values) const {
    if (type == DataType::float32) return load_as<DataType::float32>(elements, valid, values);
    if (type == DataType::bfloat16) return load_as<DataType::bfloat16>(elements, valid, values);
    load_as<DataType::float16>(elements, valid, values);
  }
  __device__ __forceinline__ void store(DataType type, std::byte* elements, std::uint32_t valid,
                                        const Values& values) const {
    if (type == DataType::float32) return store_as<DataType::float32>(elements, valid, values);
    if (type == DataType::bfloat16) return store_as<DataType::bfloat16>(elements, valid, values);
    store_as<DataType::float16>(elements, valid, values);
  }

  /// By the whole warp.
  __device__ __forceinline__ LaneCodes<format> encode(const Values& values) const {
    std::uint32_t largest = 0;
#pragma unroll
    for (int e = 0; e < lane_elements; ++e) {
      const std::uint32_t magnitude = to_bits(values[e]) & FloatFormat<float>::magnitude_mask;
      largest = magnitude > largest ? magnitude : largest;
    }
#pragma unroll
    for (std::uint32_t apart = lanes_of_block / 2; apart != 0; apart /= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, largest, static_cast<int>(apart));
      largest = other > largest ? other : largest;
    }
    LaneCodes<format> codes{{}, wire::scale_of<format>(largest)};
    const float inverse = wire::inverse_of(codes.scale);
    if (!is_nan(codes.scale)) {
#pragma unroll
      for (int e = 0; e < lane_elements; ++e) codes.set(e, wire::code_of<format>(values[e], inverse));
    }
    return codes;
  }
  __device__ __forceinline__ static void decode(const LaneCodes<format>& codes, Values& values) {
#pragma unroll
    for (int e = 0; e < lane_elements; ++e) values[e] = codes.value(e);
  }

  /// To and from the run that begins at `run` in a slot.
  __device__ __forceinline__ void write(std::byte* run, const LaneCodes<format>& codes) const {
    if constexpr (LaneCodes<format>::words == 1)
      reinterpret_cast<std::uint64_t*>(run)[lane_] = codes.bits[0];
    else
      store_plain(run + lane_ * sizeof(Granule), {codes.bits[0], codes.bits[1]});
    if (lane_ % lanes_of_block == 0) reinterpret_cast<float*>(run + codes_bytes)[lane_ / lanes_of_block] = codes.scale;
  }
  __device__ __forceinline__ LaneCodes<format> read(const std::byte* run) const {
    LaneCodes<format> codes;
    if constexpr (LaneCodes<format>::words == 1) {
      codes.bits[0] = reinterpret_cast<const std::uint64_t*>(run)[lane_];
    } else {
      const Granule bits = load_plain(run + lane_ * sizeof(Granule));
      codes.bits[0] = bits.low;
      codes.bits[1] = bits.high;
    }
    codes.scale = reinterpret_cast<const float*>(run + codes_bytes)[lane_ / lanes_of_block];
    return codes;
  }

 private:
  /// In the run: of this thread's elements the first of a half. Int4 puts two that are 64 apart into a byte.
  __device__ std::uint32_t first_of(int half) const {
    constexpr bool shares_bytes = format == WireFormat::int4;
    const std::uint32_t block = lane_ / lanes_of_block * wire::block_elements, lane = lane_ % lanes_of_block;
    return block + lane * (shares_bytes ? lane_half : lane_elements) +
           static_cast<std::uint32_t>(half) * (shares_bytes ? wire::block_elements / 2 : lane_half);
  }
  /// Calls use(offset in bytes, bytes that exist, values) for every granule of the thread's elements.
  template <DataType type, class AnyValues, class Use>
  __device__ __forceinline__ void for_granules(std::uint32_t valid, AnyValues& values, Use&& use) const {
    constexpr std::uint32_t size = sizeof(spec::ElementType<type>), in_granule = sizeof(Granule) / size;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (std::uint32_t i = 0; i < lane_half; i += in_granule) {
        const std::uint32_t first = first_of(half) + i, left = valid > first ? valid - first : 0;
        use(first * size, (left < in_granule ? left : in_granule) * size, &values[half * lane_half + i]);
      }
  }
  template <DataType type>
  struct Elements {
    spec::ElementType<type> values[sizeof(Granule) / sizeof(spec::ElementType<type>)];
  };
  template <DataType type>
  __device__ __forceinline__ void load_as(const std::byte* elements, std::uint32_t valid, Values& values) const {
    const UserBytes<sizeof(Granule)> bytes(elements);
    for_granules<type>(valid, values, [&](std::uint32_t offset, std::uint32_t exist, float* to) {
      const auto loaded = __builtin_bit_cast(Elements<type>, bytes.load(offset, exist));
#pragma unroll
      for (std::uint32_t e = 0; e < sizeof loaded / sizeof loaded.values[0]; ++e)
        to[e] = load_element<type>(loaded.values[e]);
    });
  }
  template <DataType type>
  __device__ __forceinline__ void store_as(std::byte* elements, std::uint32_t valid, const Values& values) const {
    const UserBytes<sizeof(Granule)> bytes(elements);
    for_granules<type>(valid, values, [&](std::uint32_t offset, std::uint32_t exist, const float* from) {
      Elements<type> stored;
#pragma unroll
      for (std::uint32_t e = 0; e < sizeof stored / sizeof stored.values[0]; ++e)
        stored.values[e] = store_element<type>(from[e]);
      bytes.store(offset, exist, __builtin_bit_cast(Granule, stored));
    });
  }

  const std::uint32_t lane_;
};

/// Multiplies elements by a scalar of their type, with one rounding to it.
template <DataType type, int count>
__device__ __forceinline__ void premultiply(const PremulScalar& scalar, float (&values)[count]) {
  const float factor = load_element<type>(element_of<type>(scalar));
#pragma unroll
  for (int e = 0; e < count; ++e)
    values[e] = load_element<type>(store_element<type>(spec::detail::multiply(values[e], factor)));
}
template <int count>
__device__ __forceinline__ void premultiply(DataType type, const PremulScalar& scalar, float (&values)[count]) {
  if (type == DataType::float32) return premultiply<DataType::float32>(scalar, values);
  if (type == DataType::bfloat16) return premultiply<DataType::bfloat16>(scalar, values);
  premultiply<DataType::float16>(scalar, values);
}

/// What this rank contributes of the run that begins at `elements`: encoded, and the residual brought up to date.
template <WireFormat format>
__device__ __forceinline__ LaneCodes<format> contribute(const RunLane<format>& lane, const Encoding& encoding,
                                                        const PremulScalar& scalar, const std::byte* elements,
                                                        std::uint32_t valid) {
  float values[lane_elements];
  lane.load(encoding.type, elements, valid, values);
  if (encoding.premultiplies) premultiply(encoding.type, scalar, values);
  if (encoding.residual == nullptr) return lane.encode(values);
  const std::size_t first = static_cast<std::size_t>(elements - encoding.elements) / size_bytes(encoding.type);
  auto* const residual = reinterpret_cast<std::byte*>(encoding.residual + first);
  float carried[lane_elements];
  lane.load(DataType::float32, residual, valid, carried);
#pragma unroll
  for (int e = 0; e < lane_elements; ++e) values[e] = spec::detail::add(values[e], carried[e]);
  const LaneCodes<format> codes = lane.encode(values);
#pragma unroll
  for (int e = 0; e < lane_elements; ++e) carried[e] = spec::detail::add(values[e], -codes.value(e));
  if (!is_nan(codes.scale)) lane.store(DataType::float32, residual, valid, carried);
  return codes;
}

}  // namespace strait::kernels
