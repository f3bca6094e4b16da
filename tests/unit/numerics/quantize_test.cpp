// The vectorised encoders and decoders of the wire formats, compared with the specification bit by bit.
#include "executor/host/quantize.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "support/reference.hpp"
#include "support/wire_reference.hpp"

namespace strait {
namespace {

using testing::Bytes;

constexpr DataType wire_types[] = {DataType::float32, DataType::bfloat16, DataType::float16};
constexpr std::byte poison{0xa5};

class Quantize : public ::testing::TestWithParam<std::tuple<Simd, WireFormat>> {
 protected:
  void SetUp() override {
    if (simd() > best_simd()) GTEST_SKIP() << "this processor has no " << name(simd());
  }
  Simd simd() const { return std::get<0>(GetParam()); }
  WireFormat format() const { return std::get<1>(GetParam()); }

  /// Encodes `elements`, from an address that is not aligned for any access.
  Bytes encoded(DataType type, const Bytes& elements, float* residual = nullptr) const {
    const std::size_t count = elements.size() / size_bytes(type);
    Bytes shifted(elements.size() + 1);
    std::copy(elements.begin(), elements.end(), shifted.begin() + 1);
    Bytes run(encoded_bytes(format(), wire::blocks_of(count)));
    encode({format(), run.data(), wire::blocks_of(count)}, type, shifted.data() + 1, count, residual, simd());
    return run;
  }
  Bytes decoded(DataType type, Bytes& run, std::size_t count) const {
    Bytes elements(count * size_bytes(type) + 2, poison);
    decode(type, elements.data() + 1, count, {format(), run.data(), wire::blocks_of(count)}, simd());
    EXPECT_EQ(elements.front(), poison);
    EXPECT_EQ(elements.back(), poison) << "beyond the last element";
    return {elements.begin() + 1, elements.end() - 1};
  }
};

INSTANTIATE_TEST_SUITE_P(Simd, Quantize,
                         ::testing::Combine(::testing::Values(Simd::portable, Simd::avx2, Simd::avx512),
                                            ::testing::Values(WireFormat::int8, WireFormat::fp8, WireFormat::int4)),
                         [](const auto& param) {
                           return std::string(name(std::get<0>(param.param))) + "_" +
                                  std::string(name(std::get<1>(param.param)));
                         });

TEST_P(Quantize, EqualsTheSpecificationAtAllCounts) {
  for (const DataType type : wire_types)
    for (const std::size_t count : {0u, 1u, 2u, 63u, 64u, 65u, 127u, 128u, 129u, 255u, 256u, 257u, 5000u}) {
      // Infinities and NaN are in some blocks only: otherwise few numbers would be left to compare.
      Bytes elements = testing::random_elements(type, count, count);
      for (std::size_t i = 0; i < count; ++i)
        if (i / wire::block_elements % 3 != 1)
          std::fill_n(elements.begin() + static_cast<std::ptrdiff_t>(i * size_bytes(type)), i % 2 * size_bytes(type),
                      std::byte{0x31});
      const std::vector<float> values = testing::to_floats(type, elements);
      Bytes run = encoded(type, elements);
      ASSERT_EQ(run, testing::encoded_reference(format(), values)) << name(type) << " count " << count;
      ASSERT_EQ(decoded(type, run, count), testing::to_elements(type, testing::decoded_reference(format(), run, count)))
          << name(type) << " count " << count;
    }
}

TEST_P(Quantize, EqualsTheSpecificationAtEveryMagnitude) {
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent)  // includes subnormals
    for (std::size_t i = 0; i < wire::block_elements; ++i) {
      const auto random = static_cast<std::uint32_t>(mix(i + 1000 * exponent));
      const std::uint32_t below = i < 2 ? 0 : std::min(exponent, random >> 24 & 15);
      values.push_back(from_bits<float>((random & 0x807fffffu) | (exponent - below) << 23));
    }
  values[values.size() - 1] = std::numeric_limits<float>::max();
  const Bytes elements = testing::to_elements(DataType::float32, values);
  Bytes run = encoded(DataType::float32, elements);
  ASSERT_EQ(run, testing::encoded_reference(format(), values));
  for (const DataType type : wire_types)
    ASSERT_EQ(decoded(type, run, values.size()),
              testing::to_elements(type, testing::decoded_reference(format(), run, values.size())));
}

TEST_P(Quantize, DecodesEveryCode) {
  Bytes run(encoded_bytes(format(), 2));
  for (std::size_t i = 0; i < 2 * wire::payload_bytes(format()); ++i) run[i] = static_cast<std::byte>(i);
  const float scales[] = {0.3F, std::numeric_limits<float>::quiet_NaN()};
  std::memcpy(run.data() + 2 * wire::payload_bytes(format()), scales, sizeof scales);
  for (const DataType type : wire_types)
    ASSERT_EQ(decoded(type, run, 256), testing::to_elements(type, testing::decoded_reference(format(), run, 256)));
}

TEST_P(Quantize, AccumulatesInOrder) {
  for (const std::size_t count : {1u, 100u, 128u, 1000u}) {
    std::vector<std::vector<float>> inputs;
    std::vector<float> sums(count + 1, 7);
    for (std::uint64_t rank = 0; rank < 5; ++rank) {
      const Bytes elements = testing::random_elements(DataType::float16, count, rank);  // their sums stay finite
      inputs.push_back(testing::to_floats(DataType::float16, elements));
      Bytes run = encoded(DataType::float16, elements);
      accumulate(sums.data(), count, {format(), run.data(), wire::blocks_of(count)}, rank == 0, simd());
    }
    EXPECT_EQ(sums.back(), 7) << "beyond the last element";
    sums.pop_back();
    ASSERT_EQ(testing::to_elements(DataType::float32, sums),
              testing::to_elements(DataType::float32, testing::wire_sum(format(), ReduceOp::sum, inputs)));
  }
}

/// Includes blocks that are zero, subnormal, infinite in some of the sources, or infinite only in their sum.
TEST_P(Quantize, RecodesAsTheOwnerOfASliceDoes) {
  constexpr std::size_t run_blocks = 4, runs = 3, run_elements = run_blocks * wire::block_elements;
  const std::size_t run_bytes = encoded_bytes(format(), run_blocks);
  for (const std::size_t ranks : {1u, 2u, 5u, 16u})
    for (const std::uint32_t averaged : {0u, static_cast<std::uint32_t>(ranks), 24u}) {
      std::vector<std::vector<float>> inputs(ranks, std::vector<float>(runs * run_elements));
      std::vector<Bytes> encoded_inputs(ranks);
      std::vector<const std::byte*> sources;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<float>& values = inputs[rank];
        constexpr float magnitudes[] = {1, 0x1p-140F, 0, 0x1p-126F, 0x1p127F, 1e-30F, 1e20F};
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = magnitudes[i / wire::block_elements % std::size(magnitudes)] *
                      static_cast<float>(static_cast<std::int32_t>(mix(i + 10'000 * rank))) * 0x1p-31F;
        if (rank == ranks - 1) values[8 * wire::block_elements + 5] = -std::numeric_limits<float>::infinity();
        values[9 * wire::block_elements] = rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 3;
        values[10 * wire::block_elements + 7] = std::numeric_limits<float>::max();  // adding another one overflows
        for (std::size_t run = 0; run < runs; ++run)
          testing::detail::append(
              encoded_inputs[rank],
              testing::encoded_reference(format(),
                                         {values.begin() + static_cast<std::ptrdiff_t>(run * run_elements),
                                          values.begin() + static_cast<std::ptrdiff_t>((run + 1) * run_elements)}));
        sources.push_back(encoded_inputs[rank].data());
      }
      const std::vector<float> sums =
          testing::wire_sum(format(), averaged == 0 ? ReduceOp::sum : ReduceOp::avg, inputs, averaged);
      Bytes result(runs * run_bytes + sizeof(float), poison);
      recode({format(), sources, result.data(), run_blocks, runs, averaged}, simd());
      for (std::size_t run = 0; run < runs; ++run) {
        const auto from = sums.begin() + static_cast<std::ptrdiff_t>(run * run_elements);
        ASSERT_EQ(Bytes(result.begin() + static_cast<std::ptrdiff_t>(run * run_bytes),
                        result.begin() + static_cast<std::ptrdiff_t>((run + 1) * run_bytes)),
                  testing::encoded_reference(format(), {from, from + run_elements}))
            << ranks << " sources, divided by " << averaged << ", run " << run;
      }
      EXPECT_EQ(result.back(), poison) << "beyond the last run";
    }
}

TEST_P(Quantize, TakesTheBlocksOfARunOnTheirOwn) {
  const std::size_t count = 1000, blocks = wire::blocks_of(count);
  const Bytes elements = testing::random_elements(DataType::bfloat16, count, 3);
  Bytes whole = encoded(DataType::bfloat16, elements);
  Bytes parts(whole.size());
  Bytes results(elements.size());
  for (std::size_t first = 0; first < blocks; first += 3) {
    const std::size_t from = first * wire::block_elements;
    const std::size_t some = std::min(count - from, 3 * wire::block_elements);
    const EncodedRun run{format(), parts.data(), blocks, first};
    encode(run, DataType::bfloat16, elements.data() + from * 2, some, nullptr, simd());
    decode(DataType::bfloat16, results.data() + from * 2, some, run, simd());
  }
  ASSERT_EQ(parts, whole);
  ASSERT_EQ(results, decoded(DataType::bfloat16, whole, count));
}

TEST_P(Quantize, ResidualsHoldWhatWasLost) {
  for (const DataType type : wire_types)
    for (const std::size_t count : {5u, 128u, 300u}) {
      std::vector<float> values(count), residual(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = std::sin(static_cast<float>(i));
        residual[i] = std::cos(static_cast<float>(i)) / 64;
      }
      if (count == 300) values[130] = std::numeric_limits<float>::infinity();
      const Bytes elements = testing::to_elements(type, values);
      values = testing::to_floats(type, elements);
      std::vector<float> carried(count), before = residual;
      for (std::size_t i = 0; i < count; ++i) carried[i] = values[i] + residual[i];
      Bytes run = encoded(type, elements, residual.data());
      ASSERT_EQ(run, testing::encoded_reference(format(), carried));
      const std::vector<float> results = testing::decoded_reference(format(), run, count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(residual[i], count == 300 && i / 128 == 1 ? before[i] : carried[i] - results[i]) << i;
    }
}

#if defined(__x86_64__)
TEST_P(Quantize, DoesNotDependOnTheThreadsOwnSettings) {
  const Bytes elements = testing::random_elements(DataType::float32, 4096, 9);
  const Bytes expected = encoded(DataType::float32, elements);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040 | 0x6000);  // flush subnormals, round toward zero
  const unsigned own = _mm_getcsr();
  const Bytes run = encoded(DataType::float32, elements);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(run, expected);
  EXPECT_EQ(after & ~0x3fu, own & ~0x3fu);
}
#endif

}  // namespace
}  // namespace strait
