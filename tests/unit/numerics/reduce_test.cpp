#include "executor/host/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/enum_names.hpp"
#include "support/reference.hpp"

// Compares every instruction set with the scalar specification, bit by bit.
namespace strait {
namespace {

using testing::Bytes;
using testing::first_difference;
using testing::random_elements;
using testing::reference_step;

constexpr int all_types = data_type_count;
constexpr int all_ops = reduce_op_count;

/// Returns the type of a wide source's numbers for elements of this type.
DataType wide_type(DataType type) { return is_floating(type) && size_bytes(type) < 4 ? DataType::float32 : type; }

class Reduce : public ::testing::TestWithParam<Simd> {
 protected:
  void SetUp() override {
    if (GetParam() > best_simd()) GTEST_SKIP() << "this processor has no " << name(GetParam());
  }

  /// Runs the call into a new buffer and compares the result with the reference.
  static void expect_reference(ReduceCall call, std::span<const Bytes> inputs) {
    Bytes result(call.count * size_bytes(call.type));
    const ReduceDestination destination{.pointer = result.data()};
    call.destinations = {&destination, 1};
    const Bytes expected = reference_step(call)[0];
    reduce(call, GetParam());
    ASSERT_EQ(first_difference(expected, result, call.type, inputs), "")
        << name(call.type) << ' ' << name(call.op) << " by " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Simd, Reduce, ::testing::Values(Simd::portable, Simd::avx2, Simd::avx512),
                         [](const auto& simd) { return std::string(name(simd.param)); });

TEST_P(Reduce, EveryPairOfEightBitElements) {
  std::vector<Bytes> inputs(2, Bytes(65536));
  for (unsigned i = 0; i < 65536; ++i) {
    inputs[0][i] = static_cast<std::byte>(i & 0xff);
    inputs[1][i] = static_cast<std::byte>(i >> 8);
  }
  const ReduceSource sources[] = {{.pointer = inputs[0].data()}, {.pointer = inputs[1].data()}};
  for (const DataType type : {DataType::int8, DataType::uint8, DataType::float8_e4m3, DataType::float8_e5m2}) {
    for (int op = 0; op < all_ops; ++op) {
      expect_reference({.type = type,
                        .op = static_cast<ReduceOp>(op),
                        .sources = sources,
                        .count = 65536,
                        .final = true,
                        .ranks = 3},
                       inputs);
    }
  }
}

TEST_P(Reduce, EverySixteenBitElementWidensAndRoundsBack) {
  const std::vector<Bytes> inputs(1, [] {
    std::vector<std::uint16_t> values(65536);
    std::iota(values.begin(), values.end(), std::uint16_t{0});
    Bytes bytes(131072);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }());
  const ReduceSource source{.pointer = inputs[0].data()};
  for (const DataType type : {DataType::float16, DataType::bfloat16}) {
    expect_reference({.type = type, .sources = {&source, 1}, .count = 65536}, inputs);
  }
}

// All signs, exponents and upper mantissa bits, combined with lower bits around the rounding borders.
TEST_P(Reduce, FloatsRoundToSmallElements) {
  std::vector<std::uint32_t> values;
  for (std::uint32_t high = 0; high < (1u << 20); ++high)
    for (const std::uint32_t low : {0x000u, 0x001u, 0x7ffu, 0x800u, 0x801u, 0xfffu}) values.push_back(high << 12 | low);
  const ReduceSource source{.pointer = values.data(), .wide = true};
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2}) {
    expect_reference({.type = type, .sources = {&source, 1}, .count = values.size()}, {});
  }
}

/// A step of random shape: 1 to 17 sources and 1 to 3 destinations at any alignment, with guard bytes around them.
class RandomStep {
 public:
  RandomStep(DataType type, ReduceOp op, std::uint64_t seed) : type_(type), state_(seed) {
    count_ = below(seed % 4 == 0 ? 2000 : 150);
    const std::uint64_t source_count = 1 + below(17);
    for (std::uint64_t s = 0; s < source_count; ++s) {
      const bool wide = below(4) == 0;
      Bytes& buffer = inputs_.emplace_back(guard_bytes + count_ * 8 + guard_bytes);
      std::byte* pointer = buffer.data() + below(guard_bytes);
      testing::fill_random({pointer, count_ * width(wide)}, wide ? wide_type(type_) : type_, mix(seed + s));
      sources_.push_back({.pointer = pointer, .wide = wide});
    }
    const std::uint64_t destination_count = 1 + below(3);
    for (std::uint64_t d = 0; d < destination_count; ++d) {
      Bytes& buffer = outputs_.emplace_back(guard_bytes + count_ * 8 + guard_bytes, guard);
      const std::size_t alignment = below(2) == 0 ? 1 : size_bytes(type_);
      const std::size_t offset = below(guard_bytes / alignment) * alignment;
      destinations_.push_back({.pointer = buffer.data() + offset, .streaming = below(2) == 0});
    }
    call_ = {.type = type,
             .op = op,
             .sources = sources_,
             .destinations = destinations_,
             .count = count_,
             .final = below(2) == 0,
             .ranks = static_cast<std::uint32_t>(1 + below(300))};
  }
  RandomStep(const RandomStep&) = delete;
  RandomStep& operator=(const RandomStep&) = delete;

  void run_and_compare(Simd simd) {
    const std::vector<Bytes> expected = reference_step(call_);
    reduce(call_, simd);
    for (std::size_t d = 0; d < expected.size(); ++d) {
      const auto* begin = static_cast<const std::byte*>(destinations_[d].pointer);
      const std::span got(begin, expected[d].size());
      ASSERT_EQ(first_difference(expected[d], got, type_), "") << describe() << ", destination " << d;
      const Bytes& buffer = outputs_[d];
      const auto is_guard = [](std::byte b) { return b == guard; };
      ASSERT_TRUE(std::all_of(buffer.data(), begin, is_guard)) << describe();
      ASSERT_TRUE(std::all_of(begin + got.size(), buffer.data() + buffer.size(), is_guard)) << describe();
    }
  }

 private:
  static constexpr std::size_t guard_bytes = 160;
  static constexpr std::byte guard{0xa5};

  std::uint64_t below(std::uint64_t limit) { return (state_ = mix(state_)) % limit; }
  std::size_t width(bool wide) const { return size_bytes(wide ? wide_type(type_) : type_); }
  std::string describe() const {
    return std::string(name(type_)) + ' ' + std::string(name(call_.op)) + ", " + std::to_string(sources_.size()) +
           " sources, count " + std::to_string(count_) + (call_.final ? ", final" : "");
  }

  DataType type_;
  std::uint64_t state_;
  std::size_t count_ = 0;
  std::vector<Bytes> inputs_, outputs_;
  std::vector<ReduceSource> sources_;
  std::vector<ReduceDestination> destinations_;
  ReduceCall call_;
};

TEST_P(Reduce, RandomSteps) {
  for (int type = 0; type < all_types; ++type) {
    for (int op = 0; op < all_ops; ++op) {
      for (std::uint64_t seed = 0; seed < 60; ++seed) {
        RandomStep step(static_cast<DataType>(type), static_cast<ReduceOp>(op), mix(seed) + type * 100 + op);
        ASSERT_NO_FATAL_FAILURE(step.run_and_compare(GetParam())) << "seed " << seed;
      }
    }
  }
}

TEST_P(Reduce, InPlace) {
  constexpr std::size_t count = 1037;
  for (int t = 0; t < all_types; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const std::size_t in_place : {0, 1, 2}) {
      std::vector<Bytes> inputs;
      for (std::uint64_t rank = 0; rank < 3; ++rank) inputs.push_back(random_elements(type, count, rank));
      const Bytes expected = testing::reference_reduction({.type = type, .op = ReduceOp::sum, .inputs = inputs});
      std::vector<Bytes> buffers = inputs;
      std::vector<ReduceSource> sources;
      for (const Bytes& buffer : buffers) sources.push_back({.pointer = buffer.data()});
      const ReduceDestination destination{.pointer = buffers[in_place].data(), .streaming = in_place == 2};
      reduce({.type = type, .sources = sources, .destinations = {&destination, 1}, .count = count}, GetParam());
      ASSERT_EQ(first_difference(expected, buffers[in_place], type, inputs), "");
    }
  }
}

// Checks elements at any alignment, across the pieces in which the work is done, and that nothing beside them is
// written.
TEST_P(Reduce, PremultipliesByEveryKindOfScalar) {
  constexpr std::size_t guard_bytes = 64;
  for (int t = 0; t < all_types; ++t) {
    const auto type = static_cast<DataType>(t);
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const std::size_t count = seed < 50 ? seed : mix(seed) % 10'000;
      const Bytes input = random_elements(type, count, 2 * seed), scalar = random_elements(type, 1, 2 * seed + 1);
      Bytes source(guard_bytes + input.size()), result(guard_bytes + input.size() + guard_bytes, std::byte{0xa5});
      std::byte* const from = source.data() + mix(seed + 1) % guard_bytes;
      const std::size_t offset = mix(seed + 2) % guard_bytes;
      std::copy(input.begin(), input.end(), from);
      Bytes expected = result;
      const Bytes products = testing::reference_premultiplied(type, input, scalar);
      std::copy(products.begin(), products.end(), expected.data() + offset);
      premultiply(type, result.data() + offset, from, scalar.data(), count, GetParam());
      ASSERT_EQ(first_difference(products, std::span(result).subspan(offset, products.size()), type, {&input, 1}), "")
          << "scalar " << testing::bits_text(scalar, 0, type) << " by " << name(GetParam());
      ASSERT_EQ(result, expected) << "wrote beside its " << count << " elements";
    }
  }
}

TEST_P(Reduce, EveryProductOfEightBitElements) {
  Bytes elements(256);
  for (unsigned i = 0; i < 256; ++i) elements[i] = static_cast<std::byte>(i);
  for (const DataType type : {DataType::int8, DataType::uint8, DataType::float8_e4m3, DataType::float8_e5m2})
    for (unsigned factor = 0; factor < 256; ++factor) {
      const Bytes scalar(1, static_cast<std::byte>(factor));
      Bytes result(256);
      premultiply(type, result.data(), elements.data(), scalar.data(), 256, GetParam());
      ASSERT_EQ(first_difference(testing::reference_premultiplied(type, elements, scalar), result, type), "")
          << "scalar " << factor << " by " << name(GetParam());
    }
}

TEST_P(Reduce, NoElementsWriteNothing) {
  float value = 7;
  const ReduceSource source{.pointer = &value};
  const ReduceDestination destination{.pointer = &value, .streaming = true};
  reduce({.op = ReduceOp::prod, .sources = {&source, 1}, .destinations = {&destination, 1}}, GetParam());
  EXPECT_EQ(value, 7);
}

TEST_P(Reduce, MinAndMaxDoNotShowTheOrder) {
  for (int t = 0; t < all_types; ++t) {
    const auto type = static_cast<DataType>(t);
    std::vector<Bytes> inputs;
    for (std::uint64_t rank = 0; rank < 4; ++rank) inputs.push_back(random_elements(type, 4096, rank));
    std::vector<Bytes> backwards(inputs.rbegin(), inputs.rend());
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      const Bytes expected = testing::reference_reduction({.type = type, .op = op, .inputs = backwards});
      std::vector<ReduceSource> sources;
      for (const Bytes& input : inputs) sources.push_back({.pointer = input.data()});
      Bytes result(inputs[0].size());
      const ReduceDestination destination{.pointer = result.data()};
      reduce({.type = type, .op = op, .sources = sources, .destinations = {&destination, 1}, .count = 4096},
             GetParam());
      ASSERT_EQ(first_difference(expected, result, type, inputs), "") << name(op);
    }
  }
}

#if defined(__x86_64__)
// Subnormals survive in a thread that flushes them to zero and rounds toward zero, and the thread keeps its settings.
TEST_P(Reduce, IgnoresTheThreadsFloatEnvironment) {
  constexpr unsigned flush_and_truncate = 0x1f80 | 0x8000 | 0x0040 | 0x6000;
  std::vector<Bytes> inputs;
  for (std::uint64_t rank = 0; rank < 2; ++rank) inputs.push_back(random_elements(DataType::float32, 4096, rank));
  const ReduceSource sources[] = {{.pointer = inputs[0].data()}, {.pointer = inputs[1].data()}};
  Bytes result(inputs[0].size());
  const ReduceDestination destination{.pointer = result.data()};
  const ReduceCall call{.sources = sources, .destinations = {&destination, 1}, .count = 4096};
  const Bytes expected = reference_step(call)[0];

  const unsigned before = _mm_getcsr();
  _mm_setcsr(flush_and_truncate);
  reduce(call, GetParam());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after, flush_and_truncate);
  EXPECT_EQ(first_difference(expected, result, DataType::float32, inputs), "");
}
#endif

TEST(SimdNames, AreInverse) {
  for (const Simd simd : {Simd::portable, Simd::avx2, Simd::avx512})
    EXPECT_EQ(from_name<Simd>(name(simd), simd_count), simd);
  EXPECT_EQ(from_name<Simd>("sse9", simd_count), std::nullopt);
}

}  // namespace
}  // namespace strait
