// The specification of the wire formats, compared with plain arithmetic, and its error bounds.
#include "base/wire_format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/wire_reference.hpp"

namespace strait {
namespace {

using testing::Bytes;
using testing::through_wire;
using testing::to_floats;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest_float = std::numeric_limits<float>::max();
constexpr std::size_t block = wire::block_elements;

class WireFormats : public ::testing::TestWithParam<WireFormat> {};
INSTANTIATE_TEST_SUITE_P(Format, WireFormats, ::testing::Values(WireFormat::int8, WireFormat::fp8, WireFormat::int4),
                         [](const auto& format) { return std::string(name(format.param)); });

float largest_code(WireFormat format) {
  return testing::visit_wire(format, []<WireFormat f>() { return wire::largest_code<f>; });
}

bool is_finite_block(const std::vector<float>& values, std::size_t first) {
  for (std::size_t i = first; i < std::min(values.size(), first + block); ++i)
    if (!std::isfinite(values[i])) return false;
  return true;
}

/// Returns blocks of every magnitude, ordinary and extreme.
std::vector<float> varied_values() {
  std::vector<float> values = to_floats(DataType::float32, testing::random_elements(DataType::float32, 64 * block, 1));
  for (int exponent = -149; exponent <= 127; ++exponent)
    for (std::size_t i = 0; i < block; ++i) {
      const auto random = static_cast<std::int64_t>(mix(i + 1000 * static_cast<std::uint64_t>(exponent + 149)));
      values.push_back(std::ldexp(static_cast<float>(static_cast<double>(random) * 0x1p-63), exponent));
    }
  return values;
}

TEST_P(WireFormats, EqualPlainArithmetic) {
  const WireFormat format = GetParam();
  const std::vector<float> values = varied_values();
  const std::vector<float> results = through_wire(format, values);
  for (std::size_t first = 0; first < values.size(); first += block) {
    float largest = 0;
    for (std::size_t i = first; i < first + block; ++i) largest = std::max(largest, std::abs(values[i]));
    if (!is_finite_block(values, first)) continue;
    const float scale = std::max(largest / largest_code(format), std::numeric_limits<float>::min());
    const float inverse = 1 / scale;
    for (std::size_t i = first; i < first + block; ++i) {
      float code = std::nearbyint(values[i] * inverse);
      if (format == WireFormat::fp8) {
        // The nearest number with 4 significant bits and a resolution no finer than 2^-9.
        const float scaled = values[i] * inverse;
        const int place = scaled == 0 ? -9 : std::max(std::ilogb(scaled) - 3, -9);
        code = std::ldexp(std::nearbyint(std::ldexp(scaled, -place)), place);
      }
      ASSERT_LE(std::abs(code), largest_code(format));
      ASSERT_EQ(results[i], code * scale) << values[i] << " with scale " << scale;
      ASSERT_TRUE(std::isfinite(results[i])) << values[i];
    }
  }
}

TEST_P(WireFormats, KeepTheErrorBound) {
  const WireFormat format = GetParam();
  const std::vector<float> values = varied_values();
  const std::vector<float> results = through_wire(format, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_finite_block(values, i / block * block)) continue;
    const double scale = testing::scale_at(format, values, i);
    const double error = std::abs(static_cast<double>(results[i]) - values[i]);
    ASSERT_LE(error, testing::wire_bound(format, values[i], scale)) << values[i] << " scale " << scale;
  }
}

TEST_P(WireFormats, ReachTheLargestNumber) {
  std::vector<float> values(block, 1);
  values[3] = largest_float;
  values[4] = -largest_float;
  const std::vector<float> results = through_wire(GetParam(), values);
  EXPECT_TRUE(std::isfinite(results[3])) << results[3];
  EXPECT_EQ(results[4], -results[3]);
  EXPECT_GE(results[3], largest_float * (1 - 0x1p-22F));
}

TEST_P(WireFormats, ZerosStayZeros) {
  for (const float zero : {0.0F, -0.0F})
    for (const float value : through_wire(GetParam(), std::vector<float>(block, zero))) EXPECT_EQ(value, 0);
  const Bytes run = testing::encoded_reference(GetParam(), std::vector<float>(block, 0));
  for (std::size_t i = 0; i < wire::payload_bytes(GetParam()); ++i) EXPECT_EQ(run[i], std::byte{0});
}

TEST_P(WireFormats, OneBadElementMakesItsBlockNaNAndNoOther) {
  for (const float bad : {infinity, -infinity, nan, -nan})
    for (const std::size_t place : {block, block + 77, 2 * block - 1}) {
      std::vector<float> values(3 * block, 2);
      values[place] = bad;
      const std::vector<float> results = through_wire(GetParam(), values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i / block == 1)
          ASSERT_EQ(to_bits(results[i]), FloatFormat<float>::canonical_nan);
        else
          ASSERT_EQ(results[i], 2);
      }
      const Bytes run = testing::encoded_reference(GetParam(), values);
      const std::size_t payload = wire::payload_bytes(GetParam());
      for (std::size_t i = payload; i < 2 * payload; ++i) ASSERT_EQ(run[i], std::byte{0});
    }
}

TEST_P(WireFormats, SubnormalsRoundToTheSmallestNormal) {
  // A block of only subnormals has the smallest scale: its results differ from its values by no more than that allows.
  std::vector<float> values(block);
  for (std::size_t i = 0; i < block; ++i) values[i] = std::ldexp(static_cast<float>(i), -133);
  const std::vector<float> results = through_wire(GetParam(), values);
  EXPECT_EQ(testing::scale_at(GetParam(), values, 0), std::numeric_limits<float>::min());
  for (std::size_t i = 0; i < block; ++i)
    ASSERT_LE(std::abs(results[i] - values[i]), testing::wire_bound(GetParam(), values[i], 0x1p-126)) << i;
}

TEST_P(WireFormats, SumsKeepTheTwoHopBound) {
  const WireFormat format = GetParam();
  for (const std::size_t ranks : {1u, 2u, 3u, 8u, 64u}) {
    std::vector<std::vector<float>> inputs;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      inputs.emplace_back(5 * block + 17);
      for (std::size_t i = 0; i < inputs.back().size(); ++i) {
        const auto random = static_cast<std::int64_t>(mix(i * 1000 + rank));
        inputs.back()[i] = static_cast<float>(static_cast<double>(random) * 0x1p-60);
      }
    }
    const std::vector<float> sum = testing::wire_sum(format, ReduceOp::sum, inputs);
    const std::vector<float> result = through_wire(format, sum);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double exact = 0, magnitudes = 0;
      double bound = testing::wire_bound(format, sum[i], testing::scale_at(format, sum, i));
      for (const auto& input : inputs) {
        const double scale = testing::scale_at(format, input, i);
        exact += input[i];
        bound += testing::wire_bound(format, input[i], scale);
        magnitudes += std::abs(input[i]) + scale;
      }
      bound += static_cast<double>(ranks - 1) * 0x1p-24 * magnitudes;  // error of adding floats
      ASSERT_LE(std::abs(result[i] - exact), bound) << ranks << " ranks, element " << i;
    }
  }
}

TEST(WireFormat, CodesSpanTheWholeRange) {
  std::vector<float> values(block);
  for (std::size_t i = 0; i < block; ++i) values[i] = static_cast<float>(i);
  EXPECT_EQ(through_wire(WireFormat::int8, values), values);  // scale 1
  std::vector<float> few(block);
  for (std::size_t i = 0; i < block; ++i) few[i] = static_cast<float>(static_cast<int>(i % 15) - 7);
  EXPECT_EQ(through_wire(WireFormat::int4, few), few);
  few[0] = 2.5F, few[1] = 3.5F, few[2] = -2.5F, few[3] = 7;
  const std::vector<float> rounded = through_wire(WireFormat::int4, few);
  EXPECT_EQ(rounded[0], 2);  // ties to even
  EXPECT_EQ(rounded[1], 4);
  EXPECT_EQ(rounded[2], -2);
}

}  // namespace
}  // namespace strait
