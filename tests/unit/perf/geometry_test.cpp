#include "perf/geometry.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace strait::perf {
namespace {

constexpr auto f32 = DataType::float32;

TEST(Geometry, AllReduceCountsTheWholeBuffer) {
  const Geometry g = geometry(Collective::all_reduce, 1030, f32, 4, 1);
  EXPECT_EQ(g.count, 257U);
  EXPECT_EQ(g.send_count, 257U);
  EXPECT_EQ(g.receive_count, 257U);
  EXPECT_EQ(algorithm_bytes(Collective::all_reduce, g, f32, 4), 1028U);
}

TEST(Geometry, BlocksAreMultiplesOf16Bytes) {
  const Geometry gather = geometry(Collective::all_gather, 1000, f32, 3, 2);
  EXPECT_EQ(gather.count, 80U);  // 250 / 3 = 83, rounded down to 4 elements
  EXPECT_EQ(gather.receive_count, 240U);
  EXPECT_EQ(gather.send_offset, 160U);
  EXPECT_EQ(algorithm_bytes(Collective::all_gather, gather, f32, 3), 960U);
  const Geometry scatter = geometry(Collective::reduce_scatter, 1000, f32, 3, 2);
  EXPECT_EQ(scatter.send_count, 240U);
  EXPECT_EQ(scatter.receive_offset, 160U);
}

TEST(Geometry, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::send_recv, 4), 1);
}

TEST(Geometry, AllToAllVBlocksFitTogether) {
  constexpr std::uint32_t ranks = 5;
  constexpr std::size_t total = 100'000;
  for (std::uint32_t a = 0; a < ranks; ++a) {
    const Blocks mine = all_to_all_v_blocks(total, f32, ranks, a);
    const Geometry g = geometry(Collective::all_to_all_v, total * 4, f32, ranks, a);
    EXPECT_EQ(std::accumulate(mine.send_counts.begin(), mine.send_counts.end(), std::size_t{0}), g.send_count);
    EXPECT_EQ(std::accumulate(mine.receive_counts.begin(), mine.receive_counts.end(), std::size_t{0}), g.receive_count);
    EXPECT_LE(g.send_count, total);
    EXPECT_EQ(mine.send_counts[a], 0U);
    for (std::uint32_t b = 0; b < ranks; ++b)
      EXPECT_EQ(mine.send_counts[b], all_to_all_v_blocks(total, f32, ranks, b).receive_counts[a]);
  }
  const Blocks first = all_to_all_v_blocks(total, f32, ranks, 0);
  EXPECT_LT(first.send_counts[1], first.send_counts[4]);
}

TEST(Geometry, ExtraElementsMakeCountsOdd) {
  EXPECT_EQ(geometry(Collective::all_reduce, 1024, DataType::float32, 4, 0, 17).count, 256U + 17);
  const Geometry g = geometry(Collective::all_gather, 1024, DataType::float32, 4, 1, 17);
  EXPECT_EQ(g.count, 64U + 17);
  EXPECT_EQ(g.receive_count, 4 * (64U + 17));
  EXPECT_EQ(g.send_offset, 64U + 17);
}

}  // namespace
}  // namespace strait::perf
