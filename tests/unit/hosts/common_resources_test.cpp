// How many cores ranks count on, which decides how many threads they have.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "communicator/facts.hpp"

namespace strait {
namespace {

struct Ranks {
  void add(const std::string& host, int first_core, int cores, CpuQuota quota = {}) {
    PeerInfo peer;
    peer.rank = static_cast<std::int32_t>(peers.size());
    peer.host_id = host;
    peers.push_back(peer);
    Facts own{};
    for (int core = first_core; core < first_core + cores; ++core) CPU_SET(core, &own.cores);
    own.quota = quota;
    facts.push_back(own);
  }
  CommonResources resources() const { return common_resources(peers, facts); }
  bool are_oversubscribed() const { return is_oversubscribed(peers.front().host_id, peers, facts); }
  std::vector<PeerInfo> peers;
  std::vector<Facts> facts;
};

TEST(CommonResources, AreTheCoresOfAllRanks) {
  Ranks ranks;
  ranks.add("a", 0, 16);
  ranks.add("a", 8, 16);
  ranks.add("b", 0, 6);
  EXPECT_EQ(ranks.resources().cores, 30u);
  EXPECT_EQ(ranks.resources().least_cores, 6u);
  EXPECT_FALSE(ranks.are_oversubscribed());
}

/// As with docker --cpus=2.5 on 128 cores.
TEST(CommonResources, OfRanksInOneContainerAreWithinItsQuota) {
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.add("a", 0, 128, {2.5, 7});
  EXPECT_EQ(ranks.resources().cores, 3u);
  EXPECT_EQ(ranks.resources().least_cores, 1u);
  EXPECT_FALSE(ranks.are_oversubscribed());
  ranks.add("a", 0, 128, {2.5, 7});
  EXPECT_TRUE(ranks.are_oversubscribed());
}

TEST(CommonResources, OfRanksInContainersOfTheirOwnAddUp) {
  Ranks ranks;
  ranks.add("a", 0, 16, {4, 7});
  ranks.add("a", 0, 16, {4, 8});
  ranks.add("b", 0, 16, {4, 7});  // the number means another group there
  EXPECT_EQ(ranks.resources().cores, 12u);
  EXPECT_EQ(ranks.resources().least_cores, 4u);
  ranks.add("a", 0, 16);
  EXPECT_EQ(ranks.resources().cores, 20u) << "one without a quota may use all cores, but there are no more";
}

}  // namespace
}  // namespace strait
