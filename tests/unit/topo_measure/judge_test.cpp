#include "doctor/judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/json.hpp"

namespace strait::doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

auto finding(const char* check, const std::string& what) {
  return AllOf(Field(&Finding::check, check), Field(&Finding::what, HasSubstr(what)),
               Field(&Finding::severity, Severity::warning));
}

/// Returns GPUs without differences: 50 GB/s to the host and back, 400 GB/s to one another.
topo::GpuMeasurements machine(std::size_t count = 4) {
  topo::GpuMeasurements gpus;
  for (std::size_t i = 0; i < count; ++i) {
    gpus.names.push_back("GPU");
    gpus.bus_ids.push_back("0000:0" + std::to_string(i) + ":00.0");
    gpus.host_links.push_back({.up_gbps = 50, .down_gbps = 50});
  }
  gpus.pair_gbps.assign(count, std::vector<double>(count, 400));
  gpus.p2p.assign(count, std::vector<bool>(count, true));
  return gpus;
}

topo::Matrix expected(const topo::GpuMeasurements& gpus, double gbps = 450) {
  return topo::Matrix(gpus.bus_ids.size(), std::vector<double>(gpus.bus_ids.size(), gbps));
}

TEST(Judge, AlikeIsNothingToTell) {
  for (const std::size_t count : {1U, 2U, 4U, 8U}) {
    topo::GpuMeasurements gpus = machine(count);
    if (count > 1) gpus.pair_gbps[0][1] = 330;  // within the variation of measurements
    gpus.host_links[0].up_gbps = 41;
    EXPECT_THAT(judge_links(gpus, expected(gpus)), IsEmpty()) << count;
    EXPECT_THAT(judge_links(gpus, expected(gpus, 0)), IsEmpty()) << count;
  }
}

TEST(Judge, ASlowLinkIsNamedInItsDirection) {
  topo::GpuMeasurements gpus = machine();
  gpus.pair_gbps[1][3] = 200;
  EXPECT_THAT(judge_links(gpus, expected(gpus)),
              ElementsAre(finding("slow_link", "GPU 1 (0000:01:00.0) to GPU 3 (0000:03:00.0) carries 200.0 GB/s")));
}

TEST(Judge, AGpuWhoseLinksAreSlowIsNamedInsteadOfThem) {
  for (const std::size_t count : {3U, 4U, 8U}) {
    topo::GpuMeasurements gpus = machine(count);
    for (std::size_t other = 0; other < count; ++other)
      if (other != 2) gpus.pair_gbps[2][other] = gpus.pair_gbps[other][2] = 100;
    EXPECT_THAT(judge_links(gpus, expected(gpus)), ElementsAre(finding("slow_gpu", "most links of GPU 2"))) << count;
  }
}

TEST(Judge, OfTwoGpusTheLinkIsNamed) {
  topo::GpuMeasurements gpus = machine(2);
  gpus.pair_gbps[0][1] = 100;
  EXPECT_THAT(judge_links(gpus, expected(gpus)), ElementsAre(finding("slow_link", "GPU 0")));
}

TEST(Judge, ASlowHostLinkIsNamedInItsDirection) {
  topo::GpuMeasurements gpus = machine();
  gpus.host_links[3].down_gbps = 12;
  EXPECT_THAT(judge_links(gpus, expected(gpus)),
              ElementsAre(finding("slow_host_link", "GPU 3 (0000:03:00.0) copies 12.0 GB/s from the host")));
}

TEST(Judge, LinksOfDifferentKindsAreNotCompared) {
  // Pairs 0-1 and 2-3 have a bridge of 50 GB/s; the others communicate through the host at 10 GB/s.
  topo::GpuMeasurements gpus = machine();
  topo::Matrix by_topology(4, std::vector<double>(4, 12));
  for (std::size_t from = 0; from < 4; ++from)
    for (std::size_t to = 0; to < 4; ++to) {
      const bool bridged = from / 2 == to / 2;
      gpus.p2p[from][to] = bridged;
      gpus.pair_gbps[from][to] = bridged ? 50 : 10;
      if (bridged) by_topology[from][to] = 56;
    }
  EXPECT_THAT(judge_links(gpus, by_topology), IsEmpty());
  gpus.pair_gbps[2][3] = 25;  // as if half of the bridge's links were down
  EXPECT_THAT(judge_links(gpus, by_topology), ElementsAre(finding("slow_link", "carries 25.0 GB/s")));
}

TEST(Judge, WhatOneGpuHasMoreLinksToIsExpectedToBeFaster) {
  // All by P2P: two NVLinks between 0 and 1, and one between each other pair.
  topo::GpuMeasurements gpus = machine(3);
  topo::Matrix by_topology = expected(gpus, 25);
  for (auto& row : gpus.pair_gbps) row.assign(3, 24);
  gpus.pair_gbps[0][1] = gpus.pair_gbps[1][0] = 48;
  by_topology[0][1] = by_topology[1][0] = 50;
  EXPECT_THAT(judge_links(gpus, by_topology), IsEmpty());
  gpus.pair_gbps[0][1] = 24;
  EXPECT_THAT(judge_links(gpus, by_topology), ElementsAre(finding("slow_link", "GPU 0")));
}

TEST(Judge, TheOneThatTakesLongerForTheSameWorkIsNamed) {
  const std::vector<std::string> names{"rank 0", "rank 1", "rank 2"};
  EXPECT_THAT(judge_work("slow_rank", names, {100, 110, 120}, ""), IsEmpty());
  EXPECT_THAT(judge_work("slow_rank", names, {100, 200, 100}, ""),
              ElementsAre(finding("slow_rank", "rank 1 takes 200 us for what others do in 100 us")));
  EXPECT_THAT(judge_work("slow_rank", {"rank 0", "rank 1"}, {100, 200}, ""),
              ElementsAre(finding("slow_rank", "rank 1")));
  EXPECT_THAT(judge_work("slow_rank", {}, {}, ""), IsEmpty());
}

TEST(Judge, TheTopologySaysWhatIsExpected) {
  auto topology = parse_topology_json(R"({"strait_topology": 1, "name": "test", "hosts": [{"name": "h", "devices": [
      {"name": "numa0", "kind": "numa"},
      {"name": "gpu0", "kind": "gpu", "parent": "numa0", "bus_id": "0000:00:00.0", "link": {"gbps": 12, "us": 0.3}},
      {"name": "gpu1", "kind": "gpu", "parent": "numa0", "bus_id": "0000:01:00.0", "link": {"gbps": 12, "us": 0.3}}],
      "links": [{"kind": "nvlink", "from": "gpu0", "to": "gpu1", "gbps": 56, "us": 0.5}]}]})",
                                      "test");
  ASSERT_TRUE(topology) << topology.error().message;
  const topo::Matrix found = expected_pairs(*topology, machine(3));  // the third GPU is not in the topology
  EXPECT_EQ(found[0][1], 56);
  EXPECT_EQ(found[1][0], 56);
  EXPECT_EQ(found[0][0], 0);
  EXPECT_EQ(found[0][2], 0);
}

}  // namespace
}  // namespace strait::doctor
