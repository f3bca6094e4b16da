#pragma once

#include <cstdint>

/// The floating-point formats narrower than float, and exact conversions between them and float, for host and CUDA
/// device code. docs/numerics.md is the specification. Everything here is constexpr. Conversions to a narrower format
/// round to nearest even, subnormals are exact, and every NaN becomes the one canonical NaN of the target type.

#if defined(__CUDACC__)
#define STRAIT_HOST_DEVICE __host__ __device__
#else
#define STRAIT_HOST_DEVICE
#endif

namespace strait {

/// Storage types of one element: the bits, without arithmetic.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};
struct Float8E5M2 {
  std::uint8_t bits;
};

/// Describes a binary format with sign, exponent and mantissa, stored in `Bits`. `infinity` is the magnitude that
/// follows the largest finite one when rounding overflows: infinity, or NaN in e4m3, which has no infinity. Magnitudes
/// above `infinity` are NaN; in e4m3, `infinity` itself is NaN, too.
template <class E>
struct FloatFormat;

template <class BitsType, int mantissa, int exponent_bias, std::uint64_t infinity_bits, std::uint64_t nan_bits>
struct FloatFormatOf {
  using Bits = BitsType;
  static constexpr int mantissa_bits = mantissa;
  static constexpr int bias = exponent_bias;
  static constexpr Bits infinity = static_cast<Bits>(infinity_bits);
  static constexpr Bits canonical_nan = static_cast<Bits>(nan_bits);
  static constexpr Bits sign_mask = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  static constexpr Bits magnitude_mask = static_cast<Bits>(sign_mask - 1);
  static constexpr bool has_infinity = infinity_bits != nan_bits;
  /// The smallest magnitude that is a NaN.
  static constexpr Bits first_nan = static_cast<Bits>(has_infinity ? infinity_bits + 1 : nan_bits);
};

template <>
struct FloatFormat<Float16> : FloatFormatOf<std::uint16_t, 10, 15, 0x7c00, 0x7e00> {};
template <>
struct FloatFormat<BFloat16> : FloatFormatOf<std::uint16_t, 7, 127, 0x7f80, 0x7fc0> {};
template <>
struct FloatFormat<Float8E4M3> : FloatFormatOf<std::uint8_t, 3, 7, 0x7f, 0x7f> {};
template <>
struct FloatFormat<Float8E5M2> : FloatFormatOf<std::uint8_t, 2, 15, 0x7c, 0x7e> {};
template <>
struct FloatFormat<float> : FloatFormatOf<std::uint32_t, 23, 127, 0x7f800000, 0x7fc00000> {};
template <>
struct FloatFormat<double> : FloatFormatOf<std::uint64_t, 52, 1023, 0x7ff0000000000000, 0x7ff8000000000000> {};

template <class E>
STRAIT_HOST_DEVICE constexpr typename FloatFormat<E>::Bits to_bits(E value) {
  return __builtin_bit_cast(typename FloatFormat<E>::Bits, value);
}

template <class E>
STRAIT_HOST_DEVICE constexpr E from_bits(typename FloatFormat<E>::Bits bits) {
  return __builtin_bit_cast(E, bits);
}

template <class E>
STRAIT_HOST_DEVICE constexpr bool is_nan(E value) {
  return (to_bits(value) & FloatFormat<E>::magnitude_mask) >= FloatFormat<E>::first_nan;
}

template <class E>
STRAIT_HOST_DEVICE constexpr E canonical_nan() {
  return from_bits<E>(FloatFormat<E>::canonical_nan);
}

/// How the values of a narrow format E map to bits of float: the constants of both the scalar and the vector
/// conversions.
template <class E>
struct Widening {
  using Format = FloatFormat<E>;
  static constexpr int shift = 23 - Format::mantissa_bits;  ///< how many more mantissa bits float has
  static constexpr std::uint32_t rebias =
      (127u - Format::bias) << 23;  ///< added to the exponent field of a normal number to convert it to float
  /// Whether the subnormals of E are normal numbers in float.
  static constexpr bool subnormals_become_normal = rebias != 0;
  static constexpr std::uint32_t smallest_normal =
      rebias + (1u << 23);  ///< the smallest normal number of E, as the bits of a float
  /// A float whose unit in the last place is the smallest subnormal of E. Adding it to a magnitude below
  /// `smallest_normal` rounds that magnitude to a multiple of this subnormal.
  static constexpr std::uint32_t rounder = rebias + ((1u + shift) << 23);
};

/// Returns the exact value of an element. NaN becomes the canonical NaN of float.
template <class E>
STRAIT_HOST_DEVICE constexpr float to_float(E value) {
  using Format = FloatFormat<E>;
  using Wide = Widening<E>;
  const std::uint32_t magnitude = value.bits & Format::magnitude_mask;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & Format::sign_mask)
                             << (32 - 8 * sizeof(value.bits));
  if (magnitude >= Format::first_nan) return canonical_nan<float>();
  if (magnitude >= Format::infinity) return from_bits<float>(sign | FloatFormat<float>::infinity);
  std::uint32_t bits = (magnitude << Wide::shift) + Wide::rebias;
  if (Wide::subnormals_become_normal && magnitude < (1u << Format::mantissa_bits)) {
    // With the exponent raised by one, the bits gain an implicit leading one above the mantissa; subtracting it is
    // exact.
    bits = to_bits(from_bits<float>(bits + (1u << 23)) - from_bits<float>(Wide::smallest_normal));
  }
  return from_bits<float>(bits | sign);
}

/// Returns the element nearest to `value`, ties to even. A value that rounds beyond the largest finite element becomes
/// infinity, or NaN if the format has no infinity.
template <class E>
STRAIT_HOST_DEVICE constexpr E from_float(float value) {
  using Format = FloatFormat<E>;
  using Bits = typename Format::Bits;
  using Wide = Widening<E>;
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const Bits sign = static_cast<Bits>((bits >> (32 - 8 * sizeof(Bits))) & Format::sign_mask);
  if (magnitude > FloatFormat<float>::infinity) return E{Format::canonical_nan};
  std::uint32_t rounded = 0;
  if (Wide::subnormals_become_normal && magnitude < Wide::smallest_normal) {
    rounded = to_bits(from_bits<float>(magnitude) + from_bits<float>(Wide::rounder)) - Wide::rounder;
  } else {
    const std::uint32_t half = (1u << (Wide::shift - 1)) - 1 + ((magnitude >> Wide::shift) & 1u);
    rounded = (magnitude - Wide::rebias + half) >> Wide::shift;
  }
  if (rounded > Format::infinity) rounded = Format::infinity;
  if (rounded >= Format::first_nan) return E{Format::canonical_nan};
  return E{static_cast<Bits>(rounded | sign)};
}

}  // namespace strait
