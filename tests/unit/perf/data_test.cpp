#include "perf/data.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "base/reduce_spec.hpp"

namespace strait::perf {
namespace {

constexpr std::size_t sample_bytes = 64 * 1024;

Operation example(Collective collective, std::uint32_t rank, bool in_place = false) {
  return {.collective = collective,
          .type = DataType::float32,
          .op = ReduceOp::sum,
          .ranks = 3,
          .root = 1,
          .rank = rank,
          .in_place = in_place,
          .seed = 7,
          .bytes = 30'000};
}

std::vector<unsigned char> buffer_of(const Operation& o, const Contents& contents) {
  std::vector<unsigned char> buffer((o.geometry(o.rank).buffer_count() + guard_elements) * size_bytes(o.type));
  write(o, contents, buffer.data());
  return buffer;
}

std::vector<float> inputs(const Operation& o, std::uint32_t rank, std::size_t first, std::size_t count) {
  std::vector<float> values(count);
  generate_input(o, rank, first, count, values.data());
  return values;
}

TEST(Input, IsTheSameWhereverItStarts) {
  const Operation o = example(Collective::all_reduce, 0);
  const auto whole = inputs(o, 2, 0, 100);
  const auto part = inputs(o, 2, 40, 60);
  EXPECT_EQ(std::memcmp(whole.data() + 40, part.data(), 60 * sizeof(float)), 0);
}

TEST(Input, DiffersByRankAndSeed) {
  Operation o = example(Collective::all_reduce, 0);
  const auto rank0 = inputs(o, 0, 0, 64);
  const auto rank1 = inputs(o, 1, 0, 64);
  o.seed = 8;
  const auto other_seed = inputs(o, 0, 0, 64);
  EXPECT_NE(std::memcmp(rank0.data(), rank1.data(), 64 * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(rank0.data(), other_seed.data(), 64 * sizeof(float)), 0);
}

TEST(Input, ExactOnesAddUpToTheSameBitsInAnyOrder) {
  Operation o = example(Collective::all_reduce, 0);
  o.exact = true;
  const auto check = [&]<DataType of>() {
    using Element = spec::ElementType<of>;
    o.type = of;
    std::array<std::array<Element, 512>, 3> input;
    for (std::uint32_t r = 0; r < 3; ++r) generate_input(o, r, 0, 512, input[r].data());
    const auto rounded = [](float value) { return spec::load<of>(spec::store<of>(value)); };
    std::set<float> sums;
    for (std::size_t i = 0; i < 512; ++i) {
      const float a = spec::load<of>(input[0][i]), b = spec::load<of>(input[1][i]), c = spec::load<of>(input[2][i]);
      EXPECT_EQ(rounded(rounded(a + b) + c), a + b + c) << "nothing is rounded";
      EXPECT_EQ(rounded(a + rounded(b + c)), a + b + c);
      sums.insert(a + b + c);
    }
    EXPECT_GT(sums.size(), 4U) << "and yet they differ";
  };
  check.operator()<DataType::float16>();
  check.operator()<DataType::bfloat16>();
  check.operator()<DataType::float32>();
  check.operator()<DataType::float8_e5m2>();
}

TEST(Input, FloatsAreMostlyOrdinaryAndSometimesSpecial) {
  const auto values = inputs(example(Collective::all_reduce, 0), 0, 0, sample_bytes / 4);
  std::size_t ordinary = 0;
  std::size_t special = 0;
  for (const float value : values) {
    ordinary += std::fabs(value) >= 0.25F && std::fabs(value) < 4;
    special += !std::isfinite(value);
  }
  EXPECT_GT(ordinary, values.size() * 7 / 10);
  EXPECT_GT(special, 0U);
}

TEST(Input, BytesTakeAllValues) {
  Operation o = example(Collective::all_reduce, 0);
  for (const DataType type : {DataType::uint8, DataType::float8_e4m3, DataType::float8_e5m2}) {
    o.type = type;
    std::vector<unsigned char> values(sample_bytes);
    generate_input(o, 0, 0, values.size(), values.data());
    EXPECT_EQ(std::set(values.begin(), values.end()).size(), 256U) << name(type);
  }
}

TEST(Contents, ReductionAddsInRankOrder) {
  const Operation o = example(Collective::all_reduce, 0);
  const auto buffer = buffer_of(o, receive_contents_after(o));
  const std::size_t count = o.geometry(0).count;
  const auto a = inputs(o, 0, 0, count), b = inputs(o, 1, 0, count), c = inputs(o, 2, 0, count);
  std::size_t order_shows = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float found = 0;
    std::memcpy(&found, buffer.data() + i * 4, 4);
    const float expected = (a[i] + b[i]) + c[i];
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(found));
    else
      EXPECT_EQ(found, expected) << i;
    order_shows += expected != a[i] + (b[i] + c[i]);
  }
  EXPECT_GT(order_shows, count / 10) << "the inputs must tell orders of summation apart";
}

/// Each rank has its own scalar, and products are rounded before they are added.
TEST(Contents, ReductionOfProductsMultipliesFirst) {
  Operation o = example(Collective::all_reduce, 0);
  o.op = ReduceOp::premul_sum;
  const auto buffer = buffer_of(o, receive_contents_after(o));
  const std::size_t count = o.geometry(0).count;
  const auto scalar = [&](std::uint32_t rank) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(premul_scalar(o, rank)));
  };
  EXPECT_TRUE(scalar(0) != scalar(1) && scalar(1) != scalar(2));
  const auto a = inputs(o, 0, 0, count), b = inputs(o, 1, 0, count), c = inputs(o, 2, 0, count);
  for (std::size_t i = 0; i < count; ++i) {
    float found = 0;
    std::memcpy(&found, buffer.data() + i * 4, 4);
    const float products[] = {a[i] * scalar(0), b[i] * scalar(1), c[i] * scalar(2)};
    const float expected = (products[0] + products[1]) + products[2];
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(found));
    else
      EXPECT_EQ(found, expected) << i;
  }
  o.exact = true;
  EXPECT_TRUE(scalar(0) == 1 && scalar(1) == -1) << "sums of products stay exact";
}

TEST(Contents, ScatterAndGatherPickTheirBlocks) {
  const Operation scatter = example(Collective::scatter, 2);
  const std::size_t count = scatter.geometry(2).count;
  const Segment block = receive_contents_after(scatter).front();
  EXPECT_EQ(block, (Segment{0, count, Segment::Kind::input, 1, 2 * count}));
  EXPECT_EQ(receive_contents_after(example(Collective::gather, 0)).size(), 1U) << "not the root: poison only";
  const Contents gathered = receive_contents_after(example(Collective::gather, 1));
  ASSERT_EQ(gathered.size(), 4U) << "a block of each rank, and the guard";
  EXPECT_EQ(gathered[2], (Segment{2 * count, count, Segment::Kind::input, 2, 0}));
}

TEST(Contents, InPlaceKeepsTheOtherBlocks) {
  const Operation o = example(Collective::reduce_scatter, 1, true);
  const std::size_t count = o.geometry(1).count;
  const Contents after = receive_contents_after(o);
  ASSERT_EQ(after.size(), 4U);
  EXPECT_EQ(after[0], (Segment{0, count, Segment::Kind::input, 1, 0}));
  EXPECT_EQ(after[1], (Segment{count, count, Segment::Kind::reduced, 0, count}));
  EXPECT_EQ(after[2], (Segment{2 * count, count, Segment::Kind::input, 1, 2 * count}));
  EXPECT_EQ(after[3].kind, Segment::Kind::poison);
}

TEST(Contents, CoverTheBufferForEveryCollective) {
  for (int c = 0; c < collective_count; ++c)
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      for (const bool in_place : {false, true}) {
        const Operation o = example(static_cast<Collective>(c), rank, in_place);
        if (in_place && !o.geometry(rank).has_in_place) continue;
        std::size_t end = 0;
        for (const Segment& segment : receive_contents_after(o)) {
          EXPECT_EQ(segment.offset, end) << name(o.collective);
          end += segment.count;
        }
        EXPECT_EQ(end, o.geometry(rank).buffer_count() + guard_elements) << name(o.collective);
      }
}

TEST(Contents, OfAWireFormatAreWhatItMakesOfTheInputs) {
  Operation o;
  o.ranks = 2;
  o.rank = 1;
  o.bytes = 8192;
  o.wire = WireFormat::int8;
  o.collective = Collective::all_to_all;
  const auto contents = receive_contents_after(o);
  const std::size_t count = o.geometry(1).count;
  ASSERT_EQ(count % (4 * wire::block_elements), 0U) << "so that blocks of any bits are whole blocks on the wire";
  std::vector<float> buffer(extent_bytes(o, contents) / sizeof(float));
  write(o, contents, buffer.data());
  EXPECT_EQ(count_wrong(o, contents, buffer.data()), 0U);
  const std::vector<float> sent = inputs(o, 0, count, count);  // rank 0's block for rank 1
  std::size_t differ = 0, numbers = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (i / wire::block_elements % 4 == 0) continue;  // a block of arbitrary bits
    ++numbers;
    differ += buffer[i] != sent[i];
    ASSERT_NEAR(buffer[i], sent[i], 4.0 / 127 / 2 * 1.001) << i;
  }
  EXPECT_GT(differ, numbers / 2);
}

TEST(CountWrong, FindsEachChangedElement) {
  const Operation o = example(Collective::all_to_all, 1);
  const Contents contents = receive_contents_after(o);
  auto buffer = buffer_of(o, contents);
  EXPECT_EQ(count_wrong(o, contents, buffer.data()), 0U);
  buffer[0] ^= 1;
  buffer[4321] ^= 0x80;
  buffer.back() ^= 1;  // behind the buffer
  EXPECT_EQ(count_wrong(o, contents, buffer.data()), 3U);
}

/// The number of threads that share a long buffer's blocks does not matter, even if it equals or does not divide
/// theirs.
TEST(CountWrong, IsTheSameByManyThreads) {
  Operation o = example(Collective::all_reduce, 1);
  o.bytes = 600'004;
  const Contents contents = receive_contents_after(o);
  const auto expected = buffer_of(o, contents);
  for (const std::size_t threads : {2u, 5u, 300u}) {
    std::vector<unsigned char> buffer(expected.size());
    write(o, contents, buffer.data(), threads);
    EXPECT_EQ(buffer, expected) << threads;
    for (std::size_t at = 0; at < buffer.size(); at += 4096) buffer[at] ^= 1;  // one element in each block of 1024
    EXPECT_EQ(count_wrong(o, contents, buffer.data(), threads), (buffer.size() + 4095) / 4096) << threads;
  }
}

TEST(CountWrong, SeesResultsThatWereNeverWritten) {
  const Operation o = example(Collective::broadcast, 0);
  const auto untouched = buffer_of(o, receive_contents_before(o));
  EXPECT_EQ(count_wrong(o, receive_contents_after(o), untouched.data()), o.geometry(0).count);
}

}  // namespace
}  // namespace strait::perf
