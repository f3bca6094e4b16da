#include "support/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

// All other tests rely on the reference, so it is checked against results computed by hand.
namespace strait::testing {
namespace {

template <class T>
Bytes bytes_of(std::initializer_list<T> values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

const std::vector<Bytes> two_ranks = {bytes_of<std::int32_t>({1, 2, 3, 4}), bytes_of<std::int32_t>({10, 20, 30, 40})};

Bytes output(Collective collective, std::uint32_t rank, ReduceOp op = ReduceOp::sum) {
  return reference_output({.collective = collective, .type = DataType::int32, .op = op, .root = 1, .inputs = two_ranks},
                          rank);
}

TEST(Reference, Reductions) {
  EXPECT_EQ(output(Collective::all_reduce, 0), bytes_of<std::int32_t>({11, 22, 33, 44}));
  EXPECT_EQ(output(Collective::all_reduce, 1, ReduceOp::prod), bytes_of<std::int32_t>({10, 40, 90, 160}));
  EXPECT_EQ(output(Collective::all_reduce, 1, ReduceOp::avg), bytes_of<std::int32_t>({5, 11, 16, 22}));
  EXPECT_EQ(output(Collective::reduce_scatter, 1), bytes_of<std::int32_t>({33, 44}));
  EXPECT_EQ(output(Collective::reduce, 1, ReduceOp::max), two_ranks[1]);
  EXPECT_EQ(output(Collective::reduce, 0), Bytes());
}

TEST(Reference, Movements) {
  const Bytes all = bytes_of<std::int32_t>({1, 2, 3, 4, 10, 20, 30, 40});
  EXPECT_EQ(output(Collective::all_gather, 0), all);
  EXPECT_EQ(output(Collective::gather, 1), all);
  EXPECT_EQ(output(Collective::gather, 0), Bytes());
  EXPECT_EQ(output(Collective::broadcast, 0), two_ranks[1]);
  EXPECT_EQ(output(Collective::scatter, 0), bytes_of<std::int32_t>({10, 20}));
  EXPECT_EQ(output(Collective::all_to_all, 1), bytes_of<std::int32_t>({3, 4, 30, 40}));
}

TEST(Reference, AllToAllV) {
  const std::vector<std::vector<std::size_t>> counts = {{1, 3}, {4, 0}};
  EXPECT_EQ(reference_all_to_all_v(two_ranks, counts, DataType::int32, 0), bytes_of<std::int32_t>({1, 10, 20, 30, 40}));
  EXPECT_EQ(reference_all_to_all_v(two_ranks, counts, DataType::int32, 1), bytes_of<std::int32_t>({2, 3, 4}));
}

TEST(Reference, SumsInRankOrderAndScalesEachInput) {
  const std::vector<Bytes> inputs = {bytes_of({0x1p24F}), bytes_of({1.0F}), bytes_of({1.0F}), bytes_of({-0x1p24F})};
  EXPECT_EQ(reference_reduction({.inputs = inputs}), bytes_of({0.0F}));
  const std::vector<Bytes> threes(4, bytes_of({3.0F}));  // 3 * 2^24 + 3 rounds up to a multiple of 4, twice
  EXPECT_EQ(reference_reduction({.op = ReduceOp::premul_sum, .premul_scalars = threes, .inputs = inputs}),
            bytes_of({8.0F}));
  const std::vector<Bytes> scalars = {bytes_of<std::int32_t>({3}), bytes_of<std::int32_t>({-1})};
  EXPECT_EQ(reference_reduction(
                {.type = DataType::int32, .op = ReduceOp::premul_sum, .premul_scalars = scalars, .inputs = two_ranks}),
            bytes_of<std::int32_t>({-7, -14, -21, -28}));
}

TEST(Reference, RoundsEachProductToTheElementType) {
  const auto half = [](float value) { return bytes_of({from_float<Float16>(value)}); };
  // 65 * 65 = 4225 becomes 4224 as a float16, and 4224 + 2 is a tie that rounds to 4224. If float32 were kept, 4225 + 2
  // would round to 4228.
  const std::vector<Bytes> inputs = {half(65), half(2)}, scalars = {half(65), half(1)};
  EXPECT_EQ(reference_reduction(
                {.type = DataType::float16, .op = ReduceOp::premul_sum, .premul_scalars = scalars, .inputs = inputs}),
            half(4224));
}

TEST(Reference, FirstDifferenceNamesThePlace) {
  const Bytes expected = bytes_of<std::int32_t>({1, 2, 3, 4}), got = bytes_of<std::int32_t>({1, 2, 7, 7});
  EXPECT_EQ(first_difference(expected, expected, DataType::int32), "");
  EXPECT_EQ(first_difference(expected, got, DataType::int32, two_ranks),
            "int32 [2] of 4: expected 0x00000003, got 0x00000007; 2 elements differ; inputs 0x00000003 0x0000001e");
  EXPECT_EQ(first_difference(expected, Bytes(3), DataType::int32), "expected 16 bytes, got 3");
}

template <class TypeConstant>
class RandomData : public ::testing::Test {};
template <DataType type>
using Constant = std::integral_constant<DataType, type>;
using FloatTypes =
    ::testing::Types<Constant<DataType::float16>, Constant<DataType::bfloat16>, Constant<DataType::float8_e4m3>,
                     Constant<DataType::float8_e5m2>, Constant<DataType::float32>, Constant<DataType::float64>>;
TYPED_TEST_SUITE(RandomData, FloatTypes);

TYPED_TEST(RandomData, IsReproducibleAndReachesEveryCorner) {
  constexpr DataType type = TypeParam::value;
  using Element = spec::ElementType<type>;
  using Format = FloatFormat<Element>;
  constexpr std::size_t count = 8192;
  const Bytes data = random_elements(type, count, 1), other = random_elements(type, count, 2);
  EXPECT_EQ(data, random_elements(type, count, 1));
  int nans = 0, infinities = 0, subnormals = 0, negative_zeros = 0, cancellations = 0;
  std::set<std::uint64_t> exponents;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = to_bits(detail::element_at<Element>(data.data(), i));
    const auto other_bits = to_bits(detail::element_at<Element>(other.data(), i));
    const auto magnitude = bits & Format::magnitude_mask;
    nans += magnitude >= Format::first_nan;
    infinities += Format::has_infinity && magnitude == Format::infinity;
    subnormals += magnitude != 0 && (magnitude >> Format::mantissa_bits) == 0;
    negative_zeros += bits == Format::sign_mask;
    cancellations += magnitude != 0 && (bits ^ other_bits) == Format::sign_mask;
    exponents.insert(magnitude >> Format::mantissa_bits);
  }
  constexpr std::size_t all_exponents = std::size_t{1} << (8 * sizeof(Element) - 1 - Format::mantissa_bits);
  EXPECT_GT(nans, 20);
  EXPECT_LT(nans, 400);
  EXPECT_GT(infinities, Format::has_infinity ? 20 : -1);
  EXPECT_GT(subnormals, 200);
  EXPECT_GT(negative_zeros, 100);
  EXPECT_GT(cancellations, 200);
  EXPECT_GE(exponents.size(), std::min<std::size_t>(400, all_exponents - 10));
}

}  // namespace
}  // namespace strait::testing
