#include "perf/floors.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace strait::perf {
namespace {

constexpr HostLinkRates rates{.up_gbps = 40, .down_gbps = 50, .duplex_gbps = 36};
constexpr std::size_t bytes = 400'000'000;

Floor floor(Collective collective, const LinkRates& of = rates) { return floor_of(collective, bytes, 4, of).value(); }

TEST(Floors, AreOfOneKindOfLink) {
  for (const char* const transport : {"islands", "cuda_p2p+tcp", "islands+tcp"})
    EXPECT_TRUE(has_levels(transport, true));
  for (const char* const transport : {"cuda_p2p", "host_staged"}) EXPECT_FALSE(has_levels(transport, true));
  EXPECT_FALSE(has_levels("tcp+ucx", false)) << "host ranks, whose sums keep their order";
}

TEST(Floors, AreBytesOverRates) {
  EXPECT_DOUBLE_EQ(floor(Collective::all_reduce).time_us, 10'000) << "all of it up";
  EXPECT_EQ(floor(Collective::all_reduce).binding, "up");
  EXPECT_DOUBLE_EQ(floor(Collective::all_gather).time_us, 6'000) << "three quarters down";
  EXPECT_EQ(floor(Collective::all_gather).binding, "down");
  EXPECT_DOUBLE_EQ(floor(Collective::reduce_scatter).time_us, 7'500);
  EXPECT_EQ(floor(Collective::reduce_scatter).binding, "up");
  EXPECT_DOUBLE_EQ(floor(Collective::all_to_all).time_us, 7'500);
}

/// While both directions are busy, each has 36 GB/s. A quarter goes one way while the three quarters of the other ranks
/// go the other way.
TEST(Floors, BothWaysAtOnceTakeLonger) {
  EXPECT_NEAR(floor(Collective::all_reduce).duplex_time_us, 4e5 / 36, 1e-6);
  EXPECT_NEAR(floor(Collective::all_to_all).duplex_time_us, 3e5 / 36, 1e-6);
  const double both = 1e5 / 36;
  EXPECT_NEAR(floor(Collective::reduce_scatter).duplex_time_us, both + 2e5 / 40, 1e-6);
  EXPECT_NEAR(floor(Collective::all_gather).duplex_time_us, both + 2e5 / 50, 1e-6);
}

/// If both directions share a link, using them at once is no faster than one after the other.
TEST(Floors, OfSharedLinksAreTheSum) {
  const HostLinkRates shared{.up_gbps = 10, .down_gbps = 10, .duplex_gbps = 4};
  EXPECT_NEAR(floor(Collective::all_reduce, shared).duplex_time_us, 8e4, 1e-6);
  const HostLinkRates wavering{.up_gbps = 10, .down_gbps = 10, .duplex_gbps = 11};
  EXPECT_EQ(floor(Collective::all_reduce, wavering).duplex_time_us, floor(Collective::all_reduce, wavering).time_us);
}

TEST(Floors, BetweenPeersAreOfTheOthersBlocks) {
  const PeerLinkRates peers{.out_gbps = 300};
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    EXPECT_DOUBLE_EQ(floor(collective, peers).time_us, 1'000) << static_cast<int>(collective);
  EXPECT_DOUBLE_EQ(floor(Collective::all_reduce, peers).time_us, 2'000) << "to those who add, and from them";
  EXPECT_DOUBLE_EQ(floor(Collective::all_reduce, peers).duplex_time_us, 2'000);
  EXPECT_EQ(floor(Collective::all_reduce, peers).binding, "peers");
}

TEST(Floors, OnlyWhereAllRanksDoTheSame) {
  for (const LinkRates& links : {LinkRates(rates), LinkRates(PeerLinkRates{300})})
    for (const Collective collective : {Collective::broadcast, Collective::reduce, Collective::gather,
                                        Collective::scatter, Collective::send_recv, Collective::barrier})
      EXPECT_FALSE(floor_of(collective, bytes, 4, links)) << static_cast<int>(collective);
  EXPECT_FALSE(floor_of(Collective::all_reduce, bytes, 1, rates)) << "nothing leaves a GPU";
  EXPECT_EQ(floor_of(Collective::all_reduce, 0, 2, rates)->time_us, 0);
}

}  // namespace
}  // namespace strait::perf
