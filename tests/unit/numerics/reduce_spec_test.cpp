#include "base/reduce_spec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strait::spec {
namespace {

constexpr float nan_f = std::numeric_limits<float>::quiet_NaN();

TEST(ReduceSpec, MinAndMaxPropagateNanFromEitherSide) {
  for (const float other : {0.0F, 1.0F, HUGE_VALF, -HUGE_VALF, nan_f}) {
    for (const float nan : {from_bits<float>(0xff800001u), nan_f}) {
      EXPECT_EQ(to_bits(combine<ReduceOp::min>(other, nan)), 0x7fc00000u);
      EXPECT_EQ(to_bits(combine<ReduceOp::min>(nan, other)), 0x7fc00000u);
      EXPECT_EQ(to_bits(combine<ReduceOp::max>(other, nan)), 0x7fc00000u);
      EXPECT_EQ(to_bits(combine<ReduceOp::max>(nan, other)), 0x7fc00000u);
    }
  }
}

TEST(ReduceSpec, MinusZeroIsLessThanPlusZero) {
  EXPECT_TRUE(std::signbit(combine<ReduceOp::min>(-0.0, 0.0)));
  EXPECT_TRUE(std::signbit(combine<ReduceOp::min>(0.0, -0.0)));
  EXPECT_FALSE(std::signbit(combine<ReduceOp::max>(-0.0, 0.0)));
  EXPECT_FALSE(std::signbit(combine<ReduceOp::max>(0.0, -0.0)));
  EXPECT_TRUE(std::signbit(combine<ReduceOp::max>(-0.0, -0.0)));
  EXPECT_TRUE(std::signbit(combine<ReduceOp::sum>(-0.0, -0.0)));
}

TEST(ReduceSpec, IntegersWrap) {
  EXPECT_EQ(combine<ReduceOp::sum>(std::int8_t{127}, std::int8_t{1}), -128);
  EXPECT_EQ(combine<ReduceOp::prod>(std::uint8_t{255}, std::uint8_t{255}), 1);
  EXPECT_EQ(combine<ReduceOp::sum>(INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(combine<ReduceOp::prod>(INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(combine<ReduceOp::sum>(INT64_MIN, INT64_MIN), 0);
  EXPECT_EQ(premultiplied<DataType::int8>(-128, -1), -128);
}

TEST(ReduceSpec, IntegerAveragesTruncateTowardZero) {
  EXPECT_EQ(finish<ReduceOp::avg>(-7, 2), -3);
  EXPECT_EQ(finish<ReduceOp::avg>(7, 2), 3);
  EXPECT_EQ(finish<ReduceOp::avg>(UINT32_MAX, 2), UINT32_MAX / 2);
  EXPECT_EQ(finish<ReduceOp::avg>(std::int8_t{-128}, 128), -1);  // more ranks than the type can hold
  EXPECT_EQ(finish<ReduceOp::avg>(std::int8_t{-128}, 3'000'000'000), 0);
  EXPECT_EQ(finish<ReduceOp::avg>(INT64_MIN, 1), INT64_MIN);
  EXPECT_EQ(finish<ReduceOp::sum>(-7, 2), -7);
}

TEST(ReduceSpec, FloatAveragesDivideInTheAccumulationType) {
  // 1/3 in float, then rounded to bfloat16.
  EXPECT_EQ(store<DataType::bfloat16>(finish<ReduceOp::avg>(1.0F, 3)).bits, 0x3eab);
  EXPECT_EQ(to_bits(finish<ReduceOp::avg>(10.0F, 3)), to_bits(10.0F / 3.0F));
  EXPECT_EQ(to_bits(finish<ReduceOp::avg>(1e-45F, 2)), 0u);  // half of the smallest subnormal: a tie, to even
}

// 2049 is not a float16, but is kept until the end.
TEST(ReduceSpec, SmallFloatsAccumulateInFloat) {
  float sum = load<DataType::float16>(from_float<Float16>(2048.0F));
  for (int i = 0; i < 2; ++i) sum = combine<ReduceOp::sum>(sum, load<DataType::float16>(from_float<Float16>(1.0F)));
  EXPECT_EQ(store<DataType::float16>(sum).bits, from_float<Float16>(2050.0F).bits);
}

TEST(ReduceSpec, PremultiplicationRoundsBeforeTheSum) {
  const float x = 1.0F + 0x1p-23F;
  const float product = premultiplied<DataType::float32>(x, x);
  EXPECT_EQ(combine<ReduceOp::sum>(product, -(1.0F + 0x1p-22F)), 0.0F);  // a fused multiply-add would give 2^-46
  // 65 * 65 = 4225 lies between the float16 numbers 4224 and 4228; an accumulator would keep it.
  const auto sixty_five = from_float<Float16>(65.0F);
  EXPECT_EQ(load<DataType::float16>(premultiplied<DataType::float16>(sixty_five, sixty_five)), 4224.0F);
}

TEST(ReduceSpec, OverflowOfTheEightBitFloats) {
  EXPECT_EQ(store<DataType::float8_e4m3>(448.0F + 448.0F).bits, 0x7f);
  EXPECT_EQ(store<DataType::float8_e4m3>(-HUGE_VALF).bits, 0x7f);
  EXPECT_EQ(store<DataType::float8_e5m2>(-57344.0F * 2).bits, 0xfc);
}

TEST(ReduceSpec, EveryStoredNanIsCanonical) {
  const float nan = from_bits<float>(0xffabcdefu);
  EXPECT_EQ(store<DataType::float16>(nan).bits, 0x7e00);
  EXPECT_EQ(store<DataType::bfloat16>(nan).bits, 0x7fc0);
  EXPECT_EQ(store<DataType::float8_e4m3>(nan).bits, 0x7f);
  EXPECT_EQ(store<DataType::float8_e5m2>(nan).bits, 0x7e);
  EXPECT_EQ(to_bits(store<DataType::float32>(nan)), 0x7fc00000u);
  EXPECT_EQ(to_bits(store_wide(nan)), 0x7fc00000u);
  EXPECT_EQ(to_bits(store<DataType::float64>(from_bits<double>(0xfff0000000000001))), 0x7ff8000000000000u);
}

}  // namespace
}  // namespace strait::spec
