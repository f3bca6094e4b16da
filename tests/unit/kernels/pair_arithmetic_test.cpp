// The sums of bulk granules, compared with the specification: every 16-bit element with elements of every kind.
#include "support/emulated_gpu.hpp"
//
#include "kernels/pair_arithmetic.cuh"

#include <gtest/gtest.h>

#include <array>

#include "random_granules.hpp"

namespace strait::kernels {
namespace {

/// Returns the sums of two granules, multiplied by `scale`, which differs from 1 for averages.
template <DataType type>
Elements<type> summed(const Elements<type>& a, const Elements<type>& b, float scale) {
  PairSum<type> sum;
  sum.first(__builtin_bit_cast(Granule, a));
  sum.next(__builtin_bit_cast(Granule, b));
  bool has_nan = false;
  const Granule result = sum.result(scale, has_nan);
  return __builtin_bit_cast(Elements<type>, has_nan ? with_canonical_nan<type>(result) : result);
}

template <DataType type>
void expect_specified(const Elements<type>& a, const Elements<type>& b) {
  for (const std::uint32_t averaged : {1u, 2u, 8u}) {
    const Elements<type> result = summed<type>(a, b, 1 / static_cast<float>(averaged));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto sum = spec::combine<ReduceOp::sum>(spec::load<type>(a[i]), spec::load<type>(b[i]));
      const auto expected = spec::store<type>(averaged == 1 ? sum : spec::finish<ReduceOp::avg>(sum, averaged));
      ASSERT_EQ(to_bits(result[i]), to_bits(expected)) << to_bits(a[i]) << " + " << to_bits(b[i]) << " / " << averaged;
    }
  }
}

template <DataType type>
void check_16_bits(std::uint16_t infinity, std::uint16_t canonical_nan) {
  const std::uint16_t others[] = {0,
                                  0x8000,
                                  1,
                                  0x8003,
                                  0x3c01,
                                  0xbf80,
                                  static_cast<std::uint16_t>(infinity - 1),
                                  infinity,
                                  static_cast<std::uint16_t>(infinity | 0x8000),
                                  canonical_nan,
                                  0xffff};
  for (const std::uint16_t other : others) {
    Elements<type> a, b;
    b.fill({other});
    for (std::uint32_t bits = 0; bits < 0x10000; bits += a.size()) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = {static_cast<std::uint16_t>(bits + i)};
      expect_specified<type>(a, b);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}
TEST(PairSums, OfBfloat16) { check_16_bits<DataType::bfloat16>(0x7f80, 0x7fc0); }
TEST(PairSums, OfFloat16) { check_16_bits<DataType::float16>(0x7c00, 0x7e00); }

template <DataType type>
void check_random_elements() {
  check_random<type>(
      [](const Elements<type>& first, const Elements<type>& second) { expect_specified<type>(first, second); });
}
/// Checks all pairs of bytes.
template <DataType type>
void check_8_bits() {
  for (std::uint32_t other = 0; other < 0x100; ++other)
    for (std::uint32_t bits = 0; bits < 0x100; bits += elements_per_granule<type>) {
      Elements<type> a, b;
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = {static_cast<std::uint8_t>(bits + i)};
        b[i] = {static_cast<std::uint8_t>(other)};
      }
      expect_specified<type>(a, b);
      if (::testing::Test::HasFatalFailure()) return;
    }
}
TEST(PairSums, OfFloat8E4M3) { check_8_bits<DataType::float8_e4m3>(); }
TEST(PairSums, OfFloat8E5M2) { check_8_bits<DataType::float8_e5m2>(); }
TEST(PairSums, OfFloat32) { check_random_elements<DataType::float32>(); }
TEST(PairSums, OfFloat64) { check_random_elements<DataType::float64>(); }

TEST(PairSums, OfIntegersOf8Bits) {
  std::uint32_t granule[2][4];
  for (std::uint32_t a = 0; a < 0x100; ++a)
    for (std::uint32_t b = 0; b < 0x100; ++b) {
      for (int w = 0; w < 4; ++w) {
        granule[0][w] = a | b << 8 | 0xff << 16 | (a ^ b) << 24;
        granule[1][w] = b | a << 8 | b << 16 | a << 24;
      }
      PairSum<DataType::int8> sum;
      sum.first(__builtin_bit_cast(Granule, granule[0]));
      sum.next(__builtin_bit_cast(Granule, granule[1]));
      const auto bytes = __builtin_bit_cast(std::array<std::uint8_t, 16>, sum.partial());
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const std::uint32_t first = granule[0][i / 4] >> 8 * (i % 4), second = granule[1][i / 4] >> 8 * (i % 4);
        ASSERT_EQ(bytes[i], static_cast<std::uint8_t>(first + second)) << a << ", " << b << ": " << i;
      }
    }
}

/// An average is computed this way only if multiplying by the reciprocal is exact.
TEST(PairSums, AveragesOfPowersOfTwo) {
  for (std::uint32_t averaged = 1; averaged <= 16; ++averaged) {
    float scale = 0;
    const Operation operation{ReduceOp::avg, DataType::float32, averaged, {}};
    EXPECT_EQ(is_pair_sum<DataType::float32>(operation, scale), (averaged & (averaged - 1)) == 0) << averaged;
    EXPECT_FALSE(is_pair_sum<DataType::int32>(operation, scale));
  }
}

}  // namespace
}  // namespace strait::kernels
