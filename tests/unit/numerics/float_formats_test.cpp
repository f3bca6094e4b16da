#include "base/float_formats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strait {
namespace {

/// Returns the value of a finite magnitude by the definition of the format. The bits of infinity stand for the number
/// that would follow the largest one.
template <class E>
double value_of(unsigned magnitude) {
  using Format = FloatFormat<E>;
  const int exponent = static_cast<int>(magnitude >> Format::mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << Format::mantissa_bits) - 1));
  if (exponent == 0) return std::ldexp(mantissa, 1 - Format::bias - Format::mantissa_bits);
  return std::ldexp(mantissa + (1 << Format::mantissa_bits), exponent - Format::bias - Format::mantissa_bits);
}

template <class E>
class SmallFloat : public ::testing::Test {
 protected:
  static E element(unsigned magnitude, bool negative) {
    using Bits = typename FloatFormat<E>::Bits;
    return E{static_cast<Bits>(magnitude | (negative ? FloatFormat<E>::sign_mask : 0u))};
  }
  static double sign(bool negative) { return negative ? -1.0 : 1.0; }
};
using SmallFloats = ::testing::Types<Float16, BFloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(SmallFloat, SmallFloats);

TYPED_TEST(SmallFloat, EveryFiniteElementWidensExactly) {
  for (const bool negative : {false, true}) {
    for (unsigned m = 0; m < FloatFormat<TypeParam>::infinity; ++m) {
      const float expected = static_cast<float>(this->sign(negative) * value_of<TypeParam>(m));
      ASSERT_EQ(to_bits(to_float(this->element(m, negative))), to_bits(expected)) << std::hex << m;
    }
  }
}

TYPED_TEST(SmallFloat, InfinityAndEveryNanWiden) {
  using Format = FloatFormat<TypeParam>;
  for (const bool negative : {false, true}) {
    if (Format::has_infinity) {
      EXPECT_EQ(to_float(this->element(Format::infinity, negative)),
                this->sign(negative) * std::numeric_limits<double>::infinity());
    }
    for (unsigned m = Format::first_nan; m <= Format::magnitude_mask; ++m)
      ASSERT_EQ(to_bits(to_float(this->element(m, negative))), 0x7fc00000u) << std::hex << m;
  }
}

// The point halfway between two neighbours is rounded to the even one, and points beside it to the nearer one. Checked
// at every boundary of the format, including overflow.
TYPED_TEST(SmallFloat, EveryRoundingBoundary) {
  using Format = FloatFormat<TypeParam>;
  const auto overflowed = [](unsigned m) { return m == Format::infinity && !Format::has_infinity; };
  for (const bool negative : {false, true}) {
    const auto expect = [&](float magnitude, unsigned m) {
      const float value = negative ? -magnitude : magnitude;
      const TypeParam expected = overflowed(m) ? canonical_nan<TypeParam>() : this->element(m, negative);
      ASSERT_EQ(from_float<TypeParam>(value).bits, expected.bits) << std::hexfloat << value;
    };
    for (unsigned m = 0; m < Format::infinity; ++m) {
      const double low = value_of<TypeParam>(m), high = value_of<TypeParam>(m + 1);
      const float middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      ASSERT_NO_FATAL_FAILURE(expect(static_cast<float>(low), m));
      ASSERT_NO_FATAL_FAILURE(expect(std::nextafter(middle, 0.0F), m));
      ASSERT_NO_FATAL_FAILURE(expect(middle, m % 2 == 0 ? m : m + 1));
      ASSERT_NO_FATAL_FAILURE(expect(std::nextafter(middle, HUGE_VALF), m + 1));
    }
    ASSERT_NO_FATAL_FAILURE(expect(std::numeric_limits<float>::max(), Format::infinity));
    ASSERT_NO_FATAL_FAILURE(expect(HUGE_VALF, Format::infinity));
    ASSERT_NO_FATAL_FAILURE(expect(std::numeric_limits<float>::denorm_min(), 0));
  }
}

TYPED_TEST(SmallFloat, NanNarrowsToTheCanonicalOne) {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffc12345u})
    EXPECT_EQ(from_float<TypeParam>(from_bits<float>(bits)).bits, FloatFormat<TypeParam>::canonical_nan);
}

TEST(FloatFormats, KnownValues) {
  EXPECT_EQ(from_float<Float16>(65504.0F).bits, 0x7bff);
  EXPECT_EQ(from_float<Float16>(65520.0F).bits, 0x7c00);
  EXPECT_EQ(from_float<BFloat16>(1.0F).bits, 0x3f80);
  EXPECT_EQ(from_float<Float8E4M3>(448.0F).bits, 0x7e);
  EXPECT_EQ(from_float<Float8E4M3>(464.0F).bits, 0x7e);   // the tie goes to the even 448
  EXPECT_EQ(from_float<Float8E4M3>(-465.0F).bits, 0x7f);  // NaN, without a sign
  EXPECT_EQ(from_float<Float8E5M2>(57344.0F).bits, 0x7b);
  EXPECT_EQ(from_float<Float8E5M2>(-61440.0F).bits, 0xfc);
  static_assert(from_float<Float16>(1.0F).bits == 0x3c00);
  static_assert(from_float<Float16>(5.9604644775390625e-8F).bits == 1);
  static_assert(to_float(Float8E4M3{0x01}) == 0.001953125F);
}

}  // namespace
}  // namespace strait
