// The arithmetic of the types that share kernels, compared with the specification: every operation on every pair of
// bytes, and on random elements of the longer types.
#include "support/emulated_gpu.hpp"
//
#include "kernels/other_types.cuh"
#include "kernels/pair_arithmetic.cuh"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>

#include "random_granules.hpp"

namespace strait::kernels {
namespace {

template <class Element>
std::uint64_t bits_of(const Element& element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof element);
  return bits;
}

template <DataType type, ReduceOp op>
spec::ElementType<type> specified(spec::ElementType<type> a, spec::ElementType<type> b, spec::ElementType<type> c,
                                  spec::ElementType<type> scalar, std::uint32_t averaged) {
  if constexpr (op == ReduceOp::premul_sum)
    for (spec::ElementType<type>* each : {&a, &b, &c}) *each = spec::premultiplied<type>(*each, scalar);
  const auto two = spec::combine<op>(spec::load<type>(a), spec::load<type>(b));
  return spec::store<type>(spec::finish<op>(spec::combine<op>(two, spec::load<type>(c)), averaged));
}

/// Checks a reduction of three ranks, whose elements are a, b and a again.
template <DataType type, ReduceOp op>
void check(const Elements<type>& a, const Elements<type>& b, spec::ElementType<type> scalar,
           std::uint32_t averaged = 3) {
  Operation operation{op, type, averaged, {}};
  std::memcpy(&operation.premul_scalar.bits, &scalar, sizeof scalar);
  const auto contributed = [&](const Elements<type>& elements) {
    return contribution<other_types, false>(__builtin_bit_cast(Granule, elements), operation);
  };
  Reduction<other_types, false, Granule> reduction;
  reduction.first(contributed(a), operation);
  reduction.next(contributed(b), operation);
  reduction.next(contributed(a), operation);
  const auto result = __builtin_bit_cast(Elements<type>, reduction.result(operation));
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(bits_of(result[i]), bits_of(specified<type, op>(a[i], b[i], a[i], scalar, averaged)))
        << "operation " << static_cast<int>(op) << " of " << bits_of(a[i]) << " and " << bits_of(b[i]);
}

template <DataType type>
void check_all_operations(const Elements<type>& a, const Elements<type>& b, spec::ElementType<type> scalar) {
  check<type, ReduceOp::sum>(a, b, scalar);
  check<type, ReduceOp::prod>(a, b, scalar);
  check<type, ReduceOp::min>(a, b, scalar);
  check<type, ReduceOp::max>(a, b, scalar);
  for (const std::uint32_t averaged : {1u, 3u, 4u, 128u}) check<type, ReduceOp::avg>(a, b, scalar, averaged);
  check<type, ReduceOp::premul_sum>(a, b, scalar);
}

template <DataType type>
void check_all_bytes() {
  for (std::uint32_t other = 0; other < 0x100; ++other)
    for (std::uint32_t first = 0; first < 0x100; first += elements_per_granule<type>) {
      Elements<type> a, b;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto bits = static_cast<std::uint8_t>(first + i), other_bits = static_cast<std::uint8_t>(other);
        std::memcpy(&a[i], &bits, 1);
        std::memcpy(&b[i], &other_bits, 1);
      }
      check_all_operations<type>(a, b, b[0]);
      if (::testing::Test::HasFatalFailure()) return;
    }
}
TEST(OtherTypes, Int8) { check_all_bytes<DataType::int8>(); }
TEST(OtherTypes, Uint8) { check_all_bytes<DataType::uint8>(); }
TEST(OtherTypes, Float8E4M3) { check_all_bytes<DataType::float8_e4m3>(); }
TEST(OtherTypes, Float8E5M2) { check_all_bytes<DataType::float8_e5m2>(); }

template <DataType type>
void check_random_elements() {
  check_random<type>([](const Elements<type>& first, const Elements<type>& second) {
    check_all_operations<type>(first, second, second[0]);
  });
}
TEST(OtherTypes, Int32) { check_random_elements<DataType::int32>(); }
TEST(OtherTypes, Uint32) { check_random_elements<DataType::uint32>(); }
TEST(OtherTypes, Int64) { check_random_elements<DataType::int64>(); }
TEST(OtherTypes, Uint64) { check_random_elements<DataType::uint64>(); }
TEST(OtherTypes, Float64) { check_random_elements<DataType::float64>(); }

/// Checks all pairs of bytes, four in a word.
template <DataType type, ReduceOp op>
void check_words() {
  using Four = std::array<spec::ElementType<type>, 4>;
  for (std::uint32_t pair = 0; pair < 0x10000; ++pair) {
    const auto of = [](std::uint32_t bits) {
      const auto byte = static_cast<std::uint8_t>(bits);
      return std::bit_cast<spec::ElementType<type>>(byte);
    };
    const Four a{of(pair), of(pair >> 8), of(~pair), of(pair * 7)}, b{of(pair >> 8), of(pair), of(pair), of(pair * 13)};
    const auto combined =
        std::bit_cast<Four>(combine_bytes<type, op>(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto expected = spec::store<type>(spec::combine<op>(spec::load<type>(a[i]), spec::load<type>(b[i])));
      ASSERT_EQ(bits_of(combined[i]), bits_of(expected)) << bits_of(a[i]) << " and " << bits_of(b[i]);
    }
  }
}
template <DataType type>
void check_all_words() {
  check_words<type, ReduceOp::min>();
  check_words<type, ReduceOp::max>();
  if constexpr (is_integer8<type>) check_words<type, ReduceOp::sum>();
}
TEST(ByteWords, Int8) { check_all_words<DataType::int8>(); }
TEST(ByteWords, Uint8) { check_all_words<DataType::uint8>(); }
TEST(ByteWords, Float8E4M3) { check_all_words<DataType::float8_e4m3>(); }
TEST(ByteWords, Float8E5M2) { check_all_words<DataType::float8_e5m2>(); }

/// Which reductions take the fast path, and as which type: unsigned sums have the same bits as signed ones.
TEST(OtherTypes, SumsAreFast) {
  const auto way_of = [](DataType type, ReduceOp op, std::uint32_t ranks) {
    int way = -1;
    const bool is_fast = with_pair_sum<other_types>({op, type, ranks, {}},
                                                    [&]<DataType t>(float /*scale*/) { way = static_cast<int>(t); });
    EXPECT_EQ(is_fast, way != -1);
    return way;
  };
  const auto code = [](DataType type) { return static_cast<int>(type); };
  EXPECT_EQ(way_of(DataType::uint8, ReduceOp::sum, 4), code(DataType::int8));
  EXPECT_EQ(way_of(DataType::int32, ReduceOp::sum, 4), code(DataType::int32));
  EXPECT_EQ(way_of(DataType::uint32, ReduceOp::sum, 4), code(DataType::int32));
  EXPECT_EQ(way_of(DataType::uint64, ReduceOp::sum, 4), code(DataType::int64));
  EXPECT_EQ(way_of(DataType::float64, ReduceOp::avg, 4), code(DataType::float64));
  EXPECT_EQ(way_of(DataType::float64, ReduceOp::avg, 3), -1);
  EXPECT_EQ(way_of(DataType::int64, ReduceOp::avg, 4), -1);
  EXPECT_EQ(way_of(DataType::uint32, ReduceOp::max, 4), -1);
  EXPECT_EQ(way_of(DataType::float8_e4m3, ReduceOp::sum, 4), code(DataType::float8_e4m3));
  EXPECT_EQ(way_of(DataType::float8_e5m2, ReduceOp::avg, 2), code(DataType::float8_e5m2));
  EXPECT_EQ(way_of(DataType::float8_e5m2, ReduceOp::prod, 2), -1);
}

}  // namespace
}  // namespace strait::kernels
