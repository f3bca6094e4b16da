#include "topology/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/builtin_machines.hpp"
#include "topology/placeholder.hpp"

namespace strait {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Returns a host of one NUMA node with these devices and additional keys.
std::string host(const std::string& devices, const std::string& more = "") {
  return R"({"strait_topology": 1, "name": "x", "hosts": [{"name": "h", "devices": [{"name": "numa0", "kind": "numa"})" +
         (devices.empty() ? "" : ", " + devices) + "]" + (more.empty() ? "" : ", " + more) + "}]}";
}

std::string error_of(const std::string& json) {
  const auto topology = parse_topology_json(json, "machine.json");
  return topology ? "no error" : topology.error().message;
}

TEST(TopologyJson, CutShortAnywhereIsAnErrorThatNamesTheFile) {
  const std::string whole(builtin_machines().front().json);
  const std::size_t end = whole.find_last_of('}');
  for (std::size_t size = 0; size < end; size += 7) {
    const auto topology = parse_topology_json(whole.substr(0, size), "machine.json");
    ASSERT_FALSE(topology) << size;
    ASSERT_THAT(topology.error().message, HasSubstr("machine.json"));
  }
  EXPECT_THAT(error_of(whole.substr(0, end / 2)), AllOf(HasSubstr("line "), Not(HasSubstr("exception"))));
}

TEST(TopologyJson, MistakesNameDeviceAndRemedy) {
  const std::string gpu = R"({"name": "gpu0", "kind": "gpu", "parent": "numa0"})";
  EXPECT_EQ(error_of(host(gpu)), "no error");
  EXPECT_THAT(error_of(R"({"name": "x"})"), HasSubstr("strait_topology"));
  EXPECT_THAT(error_of(R"({"strait_topology": 2, "name": "x"})"), HasSubstr("must be 1"));
  EXPECT_THAT(error_of(host(R"({"name": "gpu0", "kind": "tpu"})")), HasSubstr("'tpu' is no kind of device"));
  EXPECT_THAT(error_of(host(R"({"name": "gpu0", "kind": "gpu", "color": 1})")),
              AllOf(HasSubstr("gpu0"), HasSubstr("unknown key \"color\"")));
  EXPECT_THAT(error_of(host(gpu + "," + gpu)), HasSubstr("two devices are called 'h/gpu0'"));
  EXPECT_THAT(error_of(host(R"({"name": "gpu0", "kind": "gpu", "parent": "swtich"})")),
              HasSubstr("no device 'swtich' of host 'h' before this one. (Parents stand before their children"));
  EXPECT_THAT(error_of(host(gpu, R"("links": [{"kind": "nvlink", "from": "gpu0", "to": "gpu1", "gbps": 1}])")),
              AllOf(HasSubstr("no device 'gpu1' of host 'h'"), Not(HasSubstr("Parents"))));
  EXPECT_THAT(error_of(host(gpu, R"("links": [{"kind": "network", "from": "gpu0", "to": "/net", "gbps": 1}])")),
              AllOf(HasSubstr("no device '/net'"), Not(HasSubstr("host 'h'")), Not(HasSubstr("Parents"))));
  EXPECT_THAT(error_of(host(R"({"name": "gpu0", "kind": "gpu"})")), HasSubstr("cannot be part of host"));
  EXPECT_THAT(error_of(host(gpu, R"("p2p": "perhaps")")), HasSubstr("is no P2P status"));
  EXPECT_THAT(error_of(host(gpu, R"("links": [{"kind": "nvlink", "from": "gpu0", "to": "numa0", "gbps": 1}])")),
              HasSubstr("cannot be"));
  EXPECT_THAT(error_of(host(gpu, R"("links": [{"kind": "nvlink", "from": "gpu0", "to": "gpu0", "gbps": 1}])")),
              HasSubstr("to itself"));
  EXPECT_THAT(error_of(host(R"({"name": "g", "kind": "gpu", "parent": "numa0", "link": {"gbps": 0}})")),
              HasSubstr("above 0"));
  EXPECT_THAT(error_of(host(R"({"name": "g", "kind": "gpu", "parent": "numa0", "link": {"gbps": 1, "count": 0}})")),
              HasSubstr("count"));
  EXPECT_THAT(error_of(host(R"({"name": "g{i}", "kind": "gpu", "parent": "numa0"})")), HasSubstr("placeholder"));
  EXPECT_THAT(error_of(host(R"({"name": "g", "copies": 2, "kind": "gpu", "parent": "numa0"})")),
              HasSubstr("two devices"));
  for (const char* copies : {"-1", "0", "1.5", "100001", "\"2\""})
    EXPECT_THAT(
        error_of(host(R"({"name": "g{i}", "kind": "gpu", "parent": "numa0", "copies": )" + std::string(copies) + "}")),
        HasSubstr("\"copies\" must be a whole number from 1 to 100000"));
  for (const char* count : {"0", "10001", "4294967297"})
    EXPECT_THAT(
        error_of(host(gpu, R"("links": [{"kind": "nvlink", "from": "gpu0", "to": "gpu0", "gbps": 1, "count": )" +
                               std::string(count) + "}]")),
        HasSubstr("\"count\" must be a whole number from 1 to 10000"));
  EXPECT_THAT(error_of(host(R"({"name": "numa1", "kind": "numa"})")), HasSubstr("no socket link"));
  EXPECT_THAT(error_of(host(gpu, R"("calibration": [{"from": "gpu0", "to": "numa0", "gbps": 5, "origin": "x"}])")),
              HasSubstr("fits no link"));
  EXPECT_THAT(error_of(R"({"strait_topology": 1, "name": "x", "hosts": [{"name": "h"}]})"), HasSubstr("no NUMA node"));
  EXPECT_THAT(error_of(R"({"strait_topology": 1, "name": "x"})"), HasSubstr("no devices"));
  EXPECT_THAT(error_of(R"({"strait_topology": 1, "name": "x", "hosts": [],
                           "devices": [{"name": "net", "kind": "network_switch"}]})"),
              HasSubstr("there are no \"hosts\""));
  for (const char* gbps : {"1e308", "1e-300", "1e10", "1e-10", R"({"up": 1, "down": 1e-300})"})
    EXPECT_THAT(error_of(host(R"({"name": "g", "kind": "gpu", "parent": "numa0", "link": {"gbps": )" +
                              std::string(gbps) + "}}")),
                HasSubstr("must be 0, or a number from 1e-9 to 1e9"))
        << gbps;
  EXPECT_EQ(error_of(host(R"({"name": "g", "kind": "gpu", "parent": "numa0", "link": {"gbps": 1e-9, "us": 1e9}})")),
            "no error");
  EXPECT_THAT(error_of(R"({"strait_topology": 1, "name": "x", "hosts": 5})"), HasSubstr("list"));
}

TEST(TopologyJson, TwoRatesOfOneLinkAreAContradiction) {
  const std::string gpus = R"({"name": "gpu{i}", "copies": 2, "kind": "gpu", "parent": "numa0"})";
  const std::string link = R"({"kind": "nvlink", "from": "gpu0", "to": "gpu1", "gbps": 1})";
  EXPECT_THAT(error_of(host(gpus, "\"links\": [" + link + "," + link + "]")), HasSubstr("two links join"));
}

TEST(TopologyJson, TwoStatusesOfOnePairAreAContradiction) {
  const std::string gpus = R"({"name": "gpu{i}", "copies": 2, "kind": "gpu", "parent": "numa0"})";
  const auto error_of_pairs = [&](const std::string& first, const std::string& second) {
    const auto pair = [](const std::string& status) {
      return R"({"from": "gpu0", "to": "gpu1", "status": ")" + status + "\"}";
    };
    return error_of(host(gpus, "\"p2p_pairs\": [" + pair(first) + "," + pair(second) + "]"));
  };
  EXPECT_EQ(error_of_pairs("ACS", "ACS"), "no error");
  EXPECT_THAT(error_of_pairs("ACS", "OK"), HasSubstr("already has another status"));
}

TEST(TopologyJson, OnlyANetworkJoinsHosts) {
  const auto error_of_link = [](const std::string& link) {
    return error_of(R"({"strait_topology": 1, "name": "x", "hosts": [{"name": "h{host}", "copies": 2, "devices": [
                       {"name": "numa0", "kind": "numa"}, {"name": "gpu0", "kind": "gpu", "parent": "numa0"}]}],
                       "links": [)" +
                    link + "]}");
  };
  EXPECT_EQ(error_of_link(""), "no error");
  EXPECT_THAT(error_of_link(R"({"kind": "socket", "from": "h0/numa0", "to": "h1/numa0", "gbps": 1})"),
              HasSubstr("joins two hosts"));
  EXPECT_THAT(error_of_link(R"({"kind": "nvlink", "from": "h0/gpu0", "to": "h1/gpu0", "gbps": 1})"),
              HasSubstr("joins two hosts"));
}

TEST(TopologyJson, ParentsInACircleAreAnError) {
  EXPECT_THAT(error_of(host(R"({"name": "a", "kind": "pcie_switch", "parent": "b"},
                               {"name": "b", "kind": "pcie_switch", "parent": "a"})")),
              HasSubstr("cycle"));
}

TEST(TopologyJson, ParentsWithoutEndAreAnError) {
  std::string deep = R"({"name": "s0", "kind": "pcie_switch", "parent": "numa0"})";
  for (int i = 0; i < 200; ++i)
    deep += R"(, {"name": "s)" + std::to_string(i + 1) + R"(", "kind": "pcie_switch", "parent": "s)" +
            std::to_string(i) + R"("})";
  EXPECT_THAT(error_of(host(deep)), HasSubstr("nested deeper"));
}

TEST(TopologyData, ParentsInACircleAreAnError) {
  TopologyData data;
  data.devices.push_back({.kind = DeviceKind::host, .name = "h"});
  data.devices.push_back({.kind = DeviceKind::pcie_switch, .name = "a", .parent = 2});
  data.devices.push_back({.kind = DeviceKind::pcie_switch, .name = "b", .parent = 1});
  const auto topology = Topology::make(data);
  ASSERT_FALSE(topology);
  EXPECT_THAT(topology.error().message, AllOf(HasSubstr("'a'"), HasSubstr("cycle")));
}

TEST(TopologyData, APairWithoutP2pGoesThroughTheHost) {
  auto topology = load_builtin_machine("4x-rtx-pro-6000");
  ASSERT_TRUE(topology);
  TopologyData data = topology->data();
  const auto gpus = topology->ranks();
  data.p2p[{gpus[0], gpus[1]}] = P2pStatus::acs;
  const Topology limited = Topology::make(data).value();
  EXPECT_EQ(limited.path(gpus[0], gpus[1]).kind, PathKind::host);
  EXPECT_EQ(limited.path(gpus[0], gpus[1]).reason, P2pStatus::acs);
  EXPECT_EQ(limited.path(gpus[1], gpus[0]).kind, PathKind::pcie);
  const auto again = parse_topology_json(to_json(limited), "again");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->data(), limited.data());
}

/// Data that goes through the host is written into its memory and read again.
TEST(TopologyData, WhatIsCrossedTwiceGivesHalf) {
  TopologyData data;
  data.devices.push_back({.kind = DeviceKind::host, .name = "h"});
  data.devices.push_back({.kind = DeviceKind::numa, .name = "numa0", .parent = 0, .memory_gbps = 10});
  for (const char* gpu : {"gpu0", "gpu1"}) data.devices.push_back({.kind = DeviceKind::gpu, .name = gpu, .parent = 1});
  const Path path = Topology::make(data).value().path(2, 3);
  EXPECT_EQ(path.kind, PathKind::host);
  EXPECT_EQ(path.bandwidth_gbps, 5);
}

TEST(Placeholders, Arithmetic) {
  EXPECT_EQ(fill_in("gpu{i}", {{}, 7}), "gpu7");
  EXPECT_EQ(fill_in("leaf{host/32}-{i%4}{i+1}{i-1}", {70, 6}), "leaf2-275");
  EXPECT_EQ(fill_in("{i", {{}, 7}), std::nullopt);
  EXPECT_EQ(fill_in("{i/0}", {{}, 7}), std::nullopt);
  EXPECT_EQ(fill_in("{host}", {{}, 7}), std::nullopt);
  EXPECT_EQ(fill_in("{i*2}", {{}, 7}), std::nullopt);
}

}  // namespace
}  // namespace strait
