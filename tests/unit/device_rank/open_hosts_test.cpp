// Which communicators a GPU rank of several hosts consists of. Ranks are processes without a GPU.
#include <gmock/gmock.h>

#include <array>
#include <string>
#include <vector>

#include "fake_device_rank.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;
using Hosts = std::vector<Island>;

class OpenHosts : public ::testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Shapes, OpenHosts,
                         ::testing::Values(Hosts{{0}, {1}}, Hosts{{0, 1}, {2, 3}}, Hosts{{0, 2}, {1, 3}},
                                           Hosts{{0, 3}, {1, 2}}, Hosts{{0, 3}, {1}, {2}}, Hosts{{0, 1, 2}, {3, 4}}));

constexpr std::uint32_t lanes = 2;

/// Checks the rank's numbers in its component communicators, by the rules of DeviceIslands: its place in its host, and
/// its host among those that meet.
void check_parts(const HostsRequest& request, const Hosts& hosts, std::uint32_t rank) {
  EXPECT_EQ(request.hosts, hosts);
  const auto [host, place] = place_of(hosts, rank);
  EXPECT_EQ(request.host->rank(), place);
  EXPECT_EQ(request.host->ranks(), hosts[host].size());
  EXPECT_TRUE(request.host->is_on_device());
  ASSERT_EQ(request.all.size(), lanes);
  for (const auto& all : request.all) EXPECT_EQ(all->rank(), rank);
  const bool meets = are_alike(hosts) || place == 0;
  ASSERT_EQ(request.across.size(), meets ? lanes : 0);
  for (const auto& across : request.across) {
    EXPECT_EQ(across->rank(), host);
    EXPECT_EQ(across->ranks(), hosts.size());
    EXPECT_FALSE(across->is_on_device());
    // Errors name ranks by their numbers in the whole communicator.
    EXPECT_THAT(across->flight_recorder().about().names[host], HasSubstr("rank " + std::to_string(rank) + " "));
  }
}

TEST_P(OpenHosts, RanksHaveTheirPlaces) {
  const Hosts& hosts = GetParam();
  int ranks = 0;
  for (const Island& host : hosts) ranks += static_cast<int>(host.size());
  LateId id;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.push_back(fork_rank([&, rank] {
      const auto own = static_cast<std::uint32_t>(rank);
      setenv("STRAIT_HOSTID", ("host" + std::to_string(place_of(hosts, own).island)).c_str(), 1);
      setenv("STRAIT_NETWORK_LANES", std::to_string(lanes).c_str(), 1);
      bool was_asked = false;
      fake_gpu.on_open_hosts = [&](const HostsRequest& request) -> Status {
        was_asked = true;
        check_parts(request, hosts, own);
        return request.agree({}, "come so far");
      };
      straitConfig_t config = test_config();
      config.device = rank;
      straitComm_t comm = nullptr;
      EXPECT_EQ(straitCommInitRank(&comm, ranks, &id.await(), rank, &config), straitUnsupported);
      EXPECT_TRUE(was_asked) << straitGetLastError(nullptr);
    }));
  id.make();
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)], 60'000), 0) << "rank " << rank;
}

TEST(NetworkLanes, FillARanksShareOfTheNetwork) {
  constexpr double unknown = 0;
  const auto expect = [](std::uint32_t cores, double gbps, std::size_t ranks, std::uint32_t all, std::uint32_t exact) {
    const NetworkLanes found = network_lanes(cores, gbps, ranks);
    EXPECT_EQ(found.all, all) << cores << " cores, " << gbps << " GB/s, " << ranks << " ranks";
    EXPECT_EQ(found.exact, exact) << cores << " cores, " << gbps << " GB/s, " << ranks << " ranks";
  };
  expect(32, unknown, 4, 8, 8);
  expect(32, 1.25, 4, 8, 1);
  expect(32, 0.16, 4, 8, 1);  // shared by eight ranks
  expect(32, 3.125, 4, 8, 3);
  expect(32, 50, 4, 8, 8);
  expect(6, 50, 4, 3, 3);
  expect(6, 1.25, 4, 3, 1);
  expect(1, unknown, 4, 1, 1);
  expect(32, unknown, 64, 4, 4);
  expect(32, unknown, 1000, 1, 1);
}

/// A rank that cannot go on after its component communicators have connected tells the ranks of all hosts.
TEST(OpenHostsFailure, IsToldToAllHosts) {
  LateId id;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank)
    children.push_back(fork_rank([&, rank] {
      setenv("STRAIT_HOSTID", rank < 2 ? "host0" : "host1", 1);
      fake_gpu.on_open_hosts = [rank](const HostsRequest& request) {
        return request.agree(rank == 3 ? Status(fail(Code::cuda_error, "no slots left")) : Status(), "start its proxy");
      };
      straitConfig_t config = test_config();
      config.device = rank;
      straitComm_t comm = nullptr;
      EXPECT_EQ(straitCommInitRank(&comm, 4, &id.await(), rank, &config),
                rank == 3 ? straitCudaError : straitRemoteError);
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("no slots left"));
    }));
  id.make();
  for (const pid_t child : children) EXPECT_EQ(wait_for(child, 60'000), 0);
}

}  // namespace
}  // namespace strait::testing
