#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "topology/builtin_machines.hpp"
#include "topology/json.hpp"
#include "topology/print.hpp"
#include "topology/shape.hpp"

namespace strait {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Islands = std::vector<std::uint32_t>;

Topology machine(std::string_view name) {
  auto topology = load_builtin_machine(name);
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  return std::move(topology).value();
}

std::string level_names(const Topology& topology) {
  std::string names;
  for (const Level& level : levels_of(topology, topology.ranks())) names += std::string(level.name) + " ";
  return names;
}

/// Returns the islands of ranks 0 ... n-1, `size` ranks each.
Islands even_islands(std::uint32_t n, std::uint32_t size) {
  Islands islands;
  for (std::uint32_t rank = 0; rank < n; ++rank) islands.push_back(rank / size);
  return islands;
}

/// Returns the flows of an all-reduce through host memory: each GPU writes its input once to the memory of its NUMA
/// node, and reads the result once from there; between these the nodes do a reduce-scatter and an all-gather. (What
/// CPUs read to add is not counted.)
std::vector<Flow> host_staged_all_reduce(const Topology& topology, std::span<const DeviceId> gpus, double bytes) {
  std::set<DeviceId> numas;
  for (const DeviceId gpu : gpus) numas.insert(topology.numa_of(gpu));
  std::vector<Flow> flows;
  for (const DeviceId gpu : gpus) flows.push_back({gpu, topology.numa_of(gpu), bytes});
  // Each node reduces its GPUs' inputs, passes their parts to the other nodes, and collects the rest.
  const double part = bytes / static_cast<double>(numas.size());
  for (const DeviceId from : numas)
    for (const DeviceId to : numas)
      if (from != to) flows.push_back({from, to, 2 * part});
  for (const DeviceId gpu : gpus) flows.push_back({topology.numa_of(gpu), gpu, bytes});
  return flows;
}

/// Returns the resource that limits an all-reduce of `bytes` through host memory, and how long it is busy.
std::pair<std::string, double> staged(const Topology& topology, double bytes) {
  const auto loads = loads_of(topology, host_staged_all_reduce(topology, topology.all(DeviceKind::gpu), bytes));
  EXPECT_TRUE(loads) << (loads ? "" : loads.error().message);
  return {topology.resource(loads->front().resource).name, loads->front().time_us};
}

class EveryBuiltinMachine : public ::testing::TestWithParam<BuiltinMachine> {};

TEST_P(EveryBuiltinMachine, RoundTrips) {
  const Topology first = machine(GetParam().name);
  const auto again = parse_topology_json(to_json(first), "again");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->data().devices, first.data().devices);
  EXPECT_EQ(again->data().calibrations, first.data().calibrations);
  EXPECT_EQ(again->data().links.size(), first.data().links.size());
  EXPECT_EQ(to_json(*again), to_json(first));
}

TEST_P(EveryBuiltinMachine, ReachesEverybodyFromTheFirstAndTheLast) {
  const Topology topology = machine(GetParam().name);
  const auto ranks = topology.ranks();
  for (const DeviceId from : {ranks.front(), ranks.back()})
    for (const DeviceId to : ranks) {
      const Path path = topology.path(from, to), back = topology.path(to, from);
      ASSERT_NE(path.kind, PathKind::none) << topology.device(from).name << " to " << topology.device(to).name;
      EXPECT_EQ(path.kind, back.kind);
      EXPECT_EQ(path.kind == PathKind::self, from == to);
      EXPECT_EQ(path.bandwidth_gbps > 0, from != to);
      for (const ResourceId id : path.crosses) {
        const double gbps = topology.resource(id).bandwidth_gbps;
        EXPECT_TRUE(gbps == 0 || path.bandwidth_gbps <= gbps);
      }
    }
}

TEST_P(EveryBuiltinMachine, IsPrintedAndDrawn) {
  const Topology topology = machine(GetParam().name);
  EXPECT_THAT(to_table(topology), HasSubstr(topology.name()));
  const std::string svg = to_svg(topology);
  EXPECT_THAT(svg, HasSubstr(topology.name()));
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

INSTANTIATE_TEST_SUITE_P(All, EveryBuiltinMachine,
                         ::testing::ValuesIn(builtin_machines().begin(), builtin_machines().end()), [](const auto& i) {
                           std::string name(i.param.name);
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

TEST(BuiltinMachines, AnUnknownOneIsAnErrorWithTheNames) {
  const auto topology = load_builtin_machine("vax");
  ASSERT_FALSE(topology);
  EXPECT_THAT(topology.error().message, HasSubstr("8x-h800"));
}

TEST(BuiltinMachines, Rtx3090) {
  const Topology topology = machine("10x-rtx3090");
  const auto gpus = topology.ranks();
  EXPECT_EQ(gpus.size(), 10U);
  EXPECT_EQ(level_names(topology), "numa host ");
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(even_islands(10, 5), even_islands(10, 10)));
  const Path path = topology.path(gpus[0], gpus[9]);
  EXPECT_EQ(path.kind, PathKind::host);
  EXPECT_EQ(path.reason, P2pStatus::chipset_not_supported);
  EXPECT_DOUBLE_EQ(path.bandwidth_gbps, 3);
  // Five GPUs share a root port: 5 x 300 MB at 3 GB/s each way = 0.5 s.
  const auto [resource, time_us] = staged(topology, 300e6);
  EXPECT_THAT(resource, HasSubstr("port"));
  EXPECT_NEAR(time_us, 500e3, 1);
}

TEST(BuiltinMachines, Rtx3090Bridged) {
  const Topology topology = machine("10x-rtx3090-bridged");
  const auto gpus = topology.ranks();
  EXPECT_EQ(level_names(topology), "nvlink numa host ");
  EXPECT_THAT(shape_of(topology, gpus).levels,
              ElementsAre(Islands{0, 1, 1, 2, 2, 3, 4, 4, 5, 5}, even_islands(10, 5), even_islands(10, 10)));
  EXPECT_EQ(topology.path(gpus[3], gpus[4]).kind, PathKind::nvlink);
  EXPECT_EQ(topology.path(gpus[2], gpus[3]).kind, PathKind::host);
}

TEST(BuiltinMachines, TwoHostsOfRtx3090) {
  const Topology topology = machine("2-hosts-10x-rtx3090");
  const auto gpus = topology.ranks();
  EXPECT_EQ(level_names(topology), "numa host ");
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(even_islands(20, 5), even_islands(20, 10)));
  EXPECT_EQ(topology.path(gpus[11], gpus[12]).kind, PathKind::host);  // although there could be a bridge
  EXPECT_EQ(topology.path(gpus[11], gpus[12]).reason, P2pStatus::chipset_not_supported);
  const Path path = topology.path(gpus[0], gpus[19]);
  EXPECT_EQ(path.kind, PathKind::net);
  EXPECT_DOUBLE_EQ(path.bandwidth_gbps, 2.5);
  EXPECT_THAT(topology.resource(path.bottleneck).name, HasSubstr("bond0"));
  // Without GPUDirect, the memory of both hosts is written and read.
  const ResourceId memory = *topology.memory_of(topology.numa_of(gpus[0]));
  EXPECT_EQ(std::count(path.crosses.begin(), path.crosses.end(), memory), 2);
}

TEST(BuiltinMachines, TwoHostsOfRtx3090Bridged) {
  const Topology topology = machine("2-hosts-10x-rtx3090-bridged");
  const auto gpus = topology.ranks();
  EXPECT_EQ(level_names(topology), "nvlink numa host ");
  EXPECT_THAT(shape_of(topology, gpus).levels,
              ElementsAre(Islands{0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 7, 8, 8, 9, 10, 10, 11, 11}, even_islands(20, 5),
                          even_islands(20, 10)));
  for (const std::size_t first : {1U, 3U, 6U, 8U, 11U, 13U, 16U, 18U})
    EXPECT_EQ(topology.path(gpus[first], gpus[first + 1]).kind, PathKind::nvlink) << first;
  EXPECT_EQ(topology.path(gpus[10], gpus[11]).kind, PathKind::host);
  EXPECT_EQ(topology.path(gpus[9], gpus[10]).kind, PathKind::net);
}

TEST(BuiltinMachines, RtxPro6000) {
  const Topology topology = machine("4x-rtx-pro-6000");
  const auto gpus = topology.ranks();
  EXPECT_EQ(level_names(topology), "numa p2p ");
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(Islands{0, 0, 1, 1}, Islands{0, 0, 0, 0}));
  EXPECT_EQ(topology.path(gpus[0], gpus[3]).kind, PathKind::pcie);
  EXPECT_DOUBLE_EQ(topology.path(gpus[0], gpus[3]).bandwidth_gbps, 50);
  // Each GPU moves its 1 GB over its own 50 GB/s in 20 ms. Memory: 2 x 1 GB in, 2 x 1 GB out, and 1 GB each from and to
  // the other node: 6 GB at 200 GB/s = 30 ms.
  const auto [resource, time_us] = staged(topology, 1e9);
  EXPECT_THAT(resource, HasSubstr("memory"));
  EXPECT_NEAR(time_us, 30e3, 1);
}

TEST(BuiltinMachines, H800) {
  const Topology topology = machine("8x-h800");
  EXPECT_THAT(shape_of(topology, topology.ranks()).levels, ElementsAre(even_islands(8, 8)));
  // Two GPUs share a root port: 2 x 1 GB at 50 GB/s = 40 ms. Memory: 4 x 1 GB in, 4 x 1 GB out, and 1 GB each from and
  // to the other node: 10 GB at 250 GB/s = 40 ms too.
  EXPECT_NEAR(staged(topology, 1e9).second, 40e3, 1);
}

TEST(BuiltinMachines, ThirtyTwoHostsOfH800) {
  const Topology topology = machine("32-hosts-8x-h800");
  const auto gpus = topology.ranks();
  ASSERT_EQ(gpus.size(), 256U);
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(even_islands(256, 8)));
  const auto name = [&](DeviceId id) { return topology.device(id).name; };
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(name(topology.nic_of(gpus[8 * 5 + i])), "host5/mlx5_" + std::to_string(i));
  const Path same_rail = topology.path(gpus[3], gpus[8 * 31 + 3]),
             other_rail = topology.path(gpus[3], gpus[8 * 31 + 4]);
  EXPECT_EQ(same_rail.kind, PathKind::net);
  EXPECT_DOUBLE_EQ(same_rail.bandwidth_gbps, 50);
  EXPECT_EQ(other_rail.crosses.size(), same_rail.crosses.size() + 2);  // up to the spine and down
  // NVLink: 8 links, which give 160 GB/s.
  EXPECT_DOUBLE_EQ(topology.path(gpus[8], gpus[15]).bandwidth_gbps, 160);
}

TEST(BuiltinMachines, SuperPod) {
  const Topology topology = machine("8x-h100-superpod");
  const auto gpus = topology.ranks();
  ASSERT_EQ(gpus.size(), 512U);
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(even_islands(512, 8)));
  // All 256 GPUs of a leaf group send 1 GB to the other group: 256 GB over 6400 GB/s = 40 ms, twice the 20 ms of the
  // NICs.
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < 256; ++i) flows.push_back({gpus[i], gpus[256 + i], 1e9});
  const auto loads = loads_of(topology, flows);
  ASSERT_TRUE(loads);
  EXPECT_EQ(topology.resource(loads->front().resource).name, "leaf0 -> spine");
  EXPECT_NEAR(loads->front().time_us, 40e3, 1);
}

TEST(BuiltinMachines, H200CalibrationsReplaceTheLabel) {
  const Topology topology = machine("4x-h200");
  const auto gpus = topology.ranks();
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(Islands{0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(topology.path(gpus[0], gpus[3]).bandwidth_gbps, 391);
  EXPECT_DOUBLE_EQ(topology.path(gpus[0], topology.numa_of(gpus[0])).bandwidth_gbps, 40);
  EXPECT_DOUBLE_EQ(topology.path(topology.numa_of(gpus[0]), gpus[0]).bandwidth_gbps, 52);
  // Uploads are the limit: 1 GB at 40 GB/s = 25 ms.
  EXPECT_NEAR(staged(topology, 1e9).second, 25e3, 1);
}

TEST(BuiltinMachines, Nvl72IsOneIslandAcrossHosts) {
  const Topology topology = machine("nvl72");
  const auto gpus = topology.ranks();
  ASSERT_EQ(gpus.size(), 72U);
  EXPECT_EQ(level_names(topology), "nvlink ");
  EXPECT_THAT(shape_of(topology, gpus).levels, ElementsAre(even_islands(72, 72)));
  EXPECT_EQ(topology.path(gpus[0], gpus[71]).kind, PathKind::nvlink);
  EXPECT_DOUBLE_EQ(topology.path(gpus[0], gpus[71]).bandwidth_gbps, 900);
}

TEST(BuiltinMachines, Laptop) {
  const Topology topology = machine("laptop");
  EXPECT_EQ(topology.ranks(), topology.all(DeviceKind::numa));
  EXPECT_THAT(to_table(topology), HasSubstr("no GPU"));
}

}  // namespace
}  // namespace strait
