#pragma once

#include <cstddef>
#include <cstdint>

#include "base/wire_format.hpp"
#include "kernels/arithmetic.cuh"
#include "kernels/launch.hpp"
#include "kernels/user_bytes.cuh"

/// Encodes data on its way from user memory into a slot, and decodes it on the way back. A warp handles a granular run
/// of four blocks; in the slot it consists of the codes of all four blocks, followed by their scales. Eight
/// neighbouring threads share a block. Each has sixteen elements, whose codes are contiguous: one granule, or half of
/// one.
namespace strait::kernels {

inline constexpr int lane_elements = 16;  ///< elements of a thread in each run

/// Returns the scale of a block that `lanes` neighbouring threads share; each passes its own values. Called by a whole
/// warp.
template <WireFormat format, std::uint32_t lanes, int count>
__device__ __forceinline__ float scale_of_lanes(const float (&values)[count]) {
  std::uint32_t largest = 0;
#pragma unroll
  for (int e = 0; e < count; ++e) {
    const std::uint32_t magnitude = to_bits(values[e]) & FloatFormat<float>::magnitude_mask;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (std::uint32_t apart = lanes / 2; apart != 0; apart /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, largest, static_cast<int>(apart));
    largest = other > largest ? other : largest;
  }
  return wire::scale_of<format>(largest);
}

/// The codes of a thread's elements of a block, and the scale of the block. The elements are two halves of contiguous
/// elements. Each half has a word of codes; int4 has a byte for two elements, one of each half.
template <WireFormat format, class Word>
struct Codes {
  static constexpr int half = sizeof(Word), elements = 2 * half;
  static constexpr int words = format == WireFormat::int4 ? 1 : 2;
  static constexpr std::uint32_t lanes = wire::block_elements / elements;  ///< threads that share a block
  Word bits[words];
  float scale;

  /// Called by a whole warp.
  __device__ __forceinline__ static Codes of(const float (&values)[elements]) {
    Codes codes{{}, scale_of_lanes<format, lanes>(values)};
    const float inverse = wire::inverse_of(codes.scale);
    if (!is_nan(codes.scale)) codes.set(values, inverse);
    return codes;
  }
  /// Returns the values of all elements, except for NaN (see wire::inner_value_of()).
  __device__ __forceinline__ void get(float (&values)[elements]) const {
    if constexpr (format == WireFormat::fp8) {
#pragma unroll
      for (int e = 0; e < elements; e += 4) {
        float four[4];
        widen_bytes<DataType::float8_e4m3>(static_cast<std::uint32_t>(bits[word_of(e)] >> shift_of(e)), four);
#pragma unroll
        for (int i = 0; i < 4; ++i) values[e + i] = spec::detail::multiply(four[i], scale);
      }
    } else {
#pragma unroll
      for (int e = 0; e < elements; ++e) values[e] = wire::inner_value_of<format>(code(e), scale);
    }
  }

 private:
  __device__ __forceinline__ void set(const float (&values)[elements], float inverse) {
    if constexpr (format == WireFormat::fp8) {
#pragma unroll
      for (int e = 0; e < elements; e += 4) {
        const auto scaled = [&](int i) { return spec::detail::multiply(values[e + i], inverse); };
        const std::uint32_t four = round_bytes<DataType::float8_e4m3>(scaled(0), scaled(1), scaled(2), scaled(3));
        bits[word_of(e)] |= Word{four} << shift_of(e);
      }
    } else {
#pragma unroll
      for (int e = 0; e < elements; ++e)
        bits[word_of(e)] |= Word{wire::code_of<format>(values[e], inverse)} << shift_of(e);
    }
  }
  __device__ __forceinline__ std::uint8_t code(int element) const {
    constexpr Word mask = words == 1 ? 0xf : 0xff;
    return static_cast<std::uint8_t>(bits[word_of(element)] >> shift_of(element) & mask);
  }
  __device__ __forceinline__ static int word_of(int element) { return words == 1 ? 0 : element / half; }
  __device__ __forceinline__ static int shift_of(int element) {
    return 8 * (element % half) + (words == 1 ? 4 * (element / half) : 0);
  }
};

/// What this thread handles of every run.
template <WireFormat format, DataType type>
class RunLane {
 public:
  using Element = spec::ElementType<type>;
  using Values = float[lane_elements];
  using Codes = kernels::Codes<format, std::uint64_t>;
  static_assert(Codes::elements == lane_elements);
  /// The thread's elements as they lie in memory.
  struct Bits {
    Granule granules[lane_elements * sizeof(Element) / sizeof(Granule)];
  };
  static constexpr std::uint32_t codes_bytes = wire::granular_run_blocks * wire::payload_bytes(format);
  static constexpr std::uint32_t run_bytes = wire::granular_run_bytes(format);
  static constexpr std::uint32_t user_bytes = wire::granular_run_elements * sizeof(Element);

  __device__ RunLane() : lane_(threadIdx.x % 32) {}

  /// For a whole run at `elements`, which must be aligned to 16 bytes.
  __device__ __forceinline__ Bits load(const std::byte* elements) const {
    Bits bits;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < granules_of_half; ++i)
        bits.granules[half * granules_of_half + i] = load_plain(elements + offset_of(half, i));
    return bits;
  }
  __device__ __forceinline__ static void widen(const Bits& bits, Values& values) {
#pragma unroll
    for (int i = 0; i < 2 * granules_of_half; ++i)
      strait::kernels::widen<type>(bits.granules[i], granule_of(values, i));
  }
  __device__ __forceinline__ void store(std::byte* elements, const Values& values) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < granules_of_half; ++i)
        store_plain(elements + offset_of(half, i),
                    narrow<type, Granule>(granule_of(values, half * granules_of_half + i)));
  }
  /// Stores the values of codes. In each block either all values are NaN or none is.
  __device__ __forceinline__ void store(std::byte* elements, const Codes& codes) const {
    Values values;
    codes.get(values);
    const bool are_nan = is_nan(codes.scale);
    OfGranule nans;
#pragma unroll
    for (int e = 0; e < in_granule; ++e) nans[e] = canonical_nan<float>();
    const Granule of_nans = narrow<type, Granule>(nans);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < granules_of_half; ++i) {
        const Granule bits = narrow_numbers<type, Granule>(granule_of(values, half * granules_of_half + i));
        store_plain(elements + offset_of(half, i), are_nan ? of_nans : bits);
      }
  }
  /// For any run, of which `valid` elements exist; the rest count as zeros.
  __device__ __forceinline__ void load(const std::byte* elements, std::uint32_t valid, Values& values) const {
    Bits bits;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < granules_of_half; ++i)
        bits.granules[half * granules_of_half + i] =
            UserBytes<sizeof(Granule)>(elements).load(offset_of(half, i), bytes_of(half, i, valid));
    widen(bits, values);
  }
  __device__ __forceinline__ void store(std::byte* elements, std::uint32_t valid, const Values& values) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < granules_of_half; ++i)
        UserBytes<sizeof(Granule)>(elements).store(
            offset_of(half, i), bytes_of(half, i, valid),
            narrow<type, Granule>(granule_of(values, half * granules_of_half + i)));
  }

  /// Access the encoded run at `run` in a slot.
  __device__ __forceinline__ void write(std::byte* run, const Codes& codes) const {
    if constexpr (Codes::words == 1)
      reinterpret_cast<std::uint64_t*>(run)[lane_] = codes.bits[0];
    else
      store_plain(run + lane_ * sizeof(Granule), {codes.bits[0], codes.bits[1]});
    if (lane_ % Codes::lanes == 0) reinterpret_cast<float*>(run + codes_bytes)[lane_ / Codes::lanes] = codes.scale;
  }
  __device__ __forceinline__ Codes read(const std::byte* run) const {
    Codes codes;
    if constexpr (Codes::words == 1) {
      codes.bits[0] = reinterpret_cast<const std::uint64_t*>(run)[lane_];
    } else {
      const Granule bits = load_plain(run + lane_ * sizeof(Granule));
      codes.bits[0] = bits.low;
      codes.bits[1] = bits.high;
    }
    codes.scale = reinterpret_cast<const float*>(run + codes_bytes)[lane_ / Codes::lanes];
    return codes;
  }

 private:
  static constexpr int in_granule = sizeof(Granule) / sizeof(Element);
  static constexpr int granules_of_half = Codes::half / in_granule;
  using OfGranule = float[in_granule];

  /// Returns the offset in the run of the i-th granule of one half of this thread's elements. With int4, elements that
  /// are 64 apart share a byte.
  __device__ std::uint32_t offset_of(int half, int i) const {
    constexpr bool shares_bytes = format == WireFormat::int4;
    const std::uint32_t block = lane_ / Codes::lanes * wire::block_elements, lane = lane_ % Codes::lanes;
    const std::uint32_t first =
        block + lane * (shares_bytes ? Codes::half : lane_elements) +
        static_cast<std::uint32_t>(half) * (shares_bytes ? wire::block_elements / 2 : Codes::half);
    return first * sizeof(Element) + static_cast<std::uint32_t>(i) * sizeof(Granule);
  }
  /// Returns how many bytes of that granule exist if `valid` elements of the run do.
  __device__ std::uint32_t bytes_of(int half, int i, std::uint32_t valid) const {
    const std::uint32_t end = valid * sizeof(Element), offset = offset_of(half, i);
    return end <= offset ? 0 : end - offset < sizeof(Granule) ? end - offset : sizeof(Granule);
  }
  __device__ __forceinline__ static OfGranule& granule_of(Values& values, int i) {
    return *reinterpret_cast<OfGranule*>(values + i * in_granule);
  }
  __device__ __forceinline__ static const OfGranule& granule_of(const Values& values, int i) {
    return *reinterpret_cast<const OfGranule*>(values + i * in_granule);
  }

  const std::uint32_t lane_;
};

/// Multiplies elements by a scalar of their type, and rounds each product once to the type.
template <DataType type, int count>
__device__ __forceinline__ void premultiply(const PremulScalar& scalar, float (&values)[count]) {
  const float factor = load_element<type>(element_of<type>(scalar));
#pragma unroll
  for (int e = 0; e < count; ++e)
    values[e] = load_element<type>(store_element<type>(spec::detail::multiply(values[e], factor)));
}

}  // namespace strait::kernels
