// The message sizes at which GPU ranks change how they carry calls, and the rates that these depend on, compared with
// values computed by hand.
#include "select/borders.hpp"

#include <gtest/gtest.h>

#include "select/cpu_reduce.hpp"
#include "select/known_exchange.hpp"
#include "sim/machine_model.hpp"
#include "topology/builtin_machines.hpp"

namespace strait {
namespace {

using kernels::ArenaKind;
constexpr std::size_t kb = 1 << 10, mb = 1 << 20;

Topology topology(std::string_view machine_name) { return std::move(load_builtin_machine(machine_name)).value(); }

std::vector<DeviceId> some_gpus(const Topology& topology, std::initializer_list<std::size_t> numbers) {
  const std::vector<DeviceId> all = topology.all(DeviceKind::gpu);
  std::vector<DeviceId> some;
  for (const std::size_t number : numbers) some.push_back(all.at(number));
  return some;
}

/// The five GPUs of a NUMA node share 3 GB/s each way.
TEST(Exchange, PortsAreShared) {
  const Topology machine = topology("10x-rtx3090");
  const auto gbps = [&](std::initializer_list<std::size_t> gpus) {
    return exchange_gbps(machine, some_gpus(machine, gpus), true);
  };
  EXPECT_NEAR(gbps({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), 3.0 / 5, 1e-9);
  EXPECT_NEAR(gbps({0, 1, 2, 3, 4}), 3.0 / 5, 1e-9);
  EXPECT_NEAR(gbps({0, 1}), 3.0 / 2, 1e-9);
  EXPECT_NEAR(gbps({0, 5}), 3.0, 1e-9);
  EXPECT_NEAR(gbps({0, 1, 5}), 3.0 / 2, 1e-9);
  EXPECT_EQ(gbps({0}), 0);
}

/// Through the host, each GPU's link carries 40 GB/s up; NVLink has 450 GB/s, of which copy engines reached 391.
TEST(Exchange, GoesThroughTheHostOrNot) {
  const Topology machine = topology("4x-h200");
  const auto all = some_gpus(machine, {0, 1, 2, 3});
  EXPECT_NEAR(exchange_gbps(machine, all, true), 40, 1e-9);
  EXPECT_NEAR(exchange_gbps(machine, all, false), 391, 1e-9);
}

/// If the ports gave more than 12 GB/s, the 15 GB/s between the sockets would limit: five of ten GPUs send to five of
/// nine peers on the other socket.
TEST(Exchange, SocketsAreShared) {
  TopologyData data = topology("10x-rtx3090").data();
  for (Link& link : data.links)
    if (link.kind == LinkKind::pcie) link.up_gbps = link.down_gbps = 100;
  for (Device& device : data.devices) device.memory_gbps = 0;
  const auto machine = Topology::make(std::move(data));
  ASSERT_TRUE(machine);
  EXPECT_NEAR(exchange_gbps(*machine, machine->all(DeviceKind::gpu), true), 15 / (5 * 5.0 / 9), 1e-9);
}

/// Each byte is written to memory and read from it. Two GPUs of a node do so for each other, at 1 GB/s in all.
TEST(Exchange, MemoryIsWrittenAndRead) {
  TopologyData data = topology("10x-rtx3090").data();
  for (Device& device : data.devices)
    if (device.kind == DeviceKind::numa) device.memory_gbps = 1;
  const auto machine = Topology::make(std::move(data));
  ASSERT_TRUE(machine);
  EXPECT_NEAR(exchange_gbps(*machine, some_gpus(*machine, {0, 1}), true), 1.0 / 4, 1e-9);
}

TEST(Rates, OfLinksThatTellNoSpeedAreUnknownUntilMeasured) {
  const Topology h200 = topology("4x-h200"), rtx = topology("10x-rtx3090");
  const auto first = some_gpus(rtx, {0});
  EXPECT_TRUE(knows_rates(h200, some_gpus(h200, {0, 1, 2, 3}))) << "measured";
  EXPECT_FALSE(knows_rates(rtx, first)) << "its port is an assumption";
  TopologyData data = rtx.data();
  const DeviceId gpu = first.front(), parent = rtx.device(gpu).parent;
  data.calibrations.push_back({.from = gpu, .to = parent, .bandwidth_gbps = 3});
  EXPECT_FALSE(knows_rates(*Topology::make(data), first)) << "one way";
  data.calibrations.push_back({.from = parent, .to = gpu, .bandwidth_gbps = 3});
  EXPECT_TRUE(knows_rates(*Topology::make(data), first));
  EXPECT_FALSE(knows_rates(*Topology::make(data), some_gpus(rtx, {0, 1})));
  for (Link& link : data.links) link.pcie = {.gigatransfers = 8, .lanes = 16};
  data.calibrations.clear();
  EXPECT_TRUE(knows_rates(*Topology::make(data), some_gpus(rtx, {0, 1}))) << "all links tell their speed";
}

/// A machine as detection finds it: links state their speed, the rate of memory is unknown, and sockets are assumed to
/// be slow.
TEST(Rates, OfMemoryAndSocketsAreNoLimitUntilMeasured) {
  TopologyData data = topology("4x-h200-no-p2p").data();
  std::vector<std::string> bus_ids;
  for (Device& device : data.devices) {
    if (device.kind == DeviceKind::numa) device.memory_gbps = 0;
    if (device.kind == DeviceKind::gpu) device.bus_id = "0000:4" + std::to_string(bus_ids.size()) + ":00.0";
    if (device.kind == DeviceKind::gpu) bus_ids.push_back(device.bus_id);
  }
  for (Link& link : data.links) {
    if (link.kind == LinkKind::pcie) link.pcie = {.gigatransfers = 32, .lanes = 16};
    if (link.kind == LinkKind::socket) link.up_gbps = link.down_gbps = 5;
  }
  const auto rate = [&] { return known_exchange_rates(*Topology::make(data), {}, bus_ids, true).gbps; };
  EXPECT_NEAR(rate(), 40, 1e-9) << "up a link";
  const Topology detected = *Topology::make(data);
  const DeviceId numa = detected.all(DeviceKind::numa).front();
  data.calibrations.push_back({.from = numa, .to = numa, .bandwidth_gbps = 60});
  EXPECT_NEAR(rate(), 60.0 / 4, 1e-9) << "what two GPUs send is written and read";
}

TEST(Borders, AreThoseMeasuredOnTheMachinesMeasured) {
  for (const std::uint32_t ranks : {2U, 3U, 4U}) {
    const Borders by_nvlink{96 * kb / (ranks - 1), 320 * kb, 768 * kb, 12 * kb, 0, 0, 128, 16 * mb};
    EXPECT_EQ(borders_of(ArenaKind::nvlink, ranks), by_nvlink);
    const Borders by_host{240 * kb / (ranks - 1), 40 * kb, 384 * kb, 32 * kb, 240 * kb, 1600, 128, 512 * kb};
    for (const double gbps : {0.0, 40.0, 63.0}) EXPECT_EQ(borders_of(ArenaKind::host, ranks, gbps), by_host);
  }
}

/// Half the rate: sending the saved bytes would take twice as long.
TEST(Borders, GoDownWithTheRate) {
  const Borders half = borders_of(ArenaKind::host, 4, 20);
  EXPECT_EQ(half, (Borders{40 * kb, 20 * kb, 192 * kb, 32 * kb, 120 * kb, 3200, 64, 256 * kb}));
  const Borders peers = borders_of(ArenaKind::pcie, 4, 39);  // a tenth of NVLink's rate
  EXPECT_NEAR(static_cast<double>(peers.one_hop_bytes), 32 * kb, 1);
  EXPECT_NEAR(static_cast<double>(peers.packets_bytes), 32 * 0.975 * kb, 1);
}

/// Blocks that only wait would take SMs from the program.
TEST(Borders, FewBlocksFillANarrowLink) {
  EXPECT_EQ(borders_of(ArenaKind::host, 10, 4.4).blocks, 14u);
  EXPECT_EQ(borders_of(ArenaKind::host, 10, 0.6).blocks, 8u);
  EXPECT_EQ(borders_of(ArenaKind::pcie, 4, 4.4).blocks, 128u) << "not measured";
}

/// In an all-reduce in one hop, each of n ranks receives n-1 messages, and in two hops 2(n-1)/n: 1.5 more with four
/// ranks, 7.2 more with ten. The root of a reduce receives n-1, or one.
TEST(Borders, GoDownWithTheRanks) {
  const Borders ten = borders_of(ArenaKind::host, 10, 0.6);
  EXPECT_EQ(ten.packets_bytes, std::size_t(80 * kb * 0.6 / 40 * 3 / 9));            // 409
  EXPECT_EQ(ten.one_hop_bytes, std::size_t(40 * kb * (0.6 / 40 * (1.5 / 7.2))));    // 128
  EXPECT_EQ(ten.one_hop_reduce_bytes, std::size_t(384 * kb * (0.6 / 40 * 2 / 8)));  // 1474
  EXPECT_EQ(borders_of(ArenaKind::nvlink, 8).one_hop_bytes, std::size_t(320 * kb * (1.5 / 5.25)));
}

TEST(CpuReducers, LeaveHalfOfTheCoresAlone) {
  EXPECT_EQ(cpu_reducers_of_each(4, 32, 4, 4), 4U);
  EXPECT_EQ(cpu_reducers_of_each(4, 8, 4, 4), 2U);
  EXPECT_EQ(cpu_reducers_of_each(4, 8, 10, 10), 0U);
  EXPECT_EQ(cpu_reducers_of_each(4, 8, 10, 6), 1U);   // the first ranks of six islands
  EXPECT_EQ(cpu_reducers_of_each(4, 16, 10, 6), 1U);  // 16 suffice for two each, which would be slower
  EXPECT_EQ(cpu_reducers_of_each(4, 5, 10, 6), 0U);
}

/// A message comes down 1.8 times to each of ten GPUs, or once if CPUs add. At 0.6 GB/s that is 3 or 1.67 us per KB.
TEST(CpuReducers, AreTakenWhereTheySpareMuch) {
  EXPECT_EQ(cpu_reduce_border_bytes(10, 10, 10, {0.6, 100}), 32 * kb);
  // At 6 GB/s a tenth of that is saved: 150 KB are needed to save 20 us.
  EXPECT_NEAR(static_cast<double>(cpu_reduce_border_bytes(10, 10, 10, {6, 1000})), 20 / 1.3333e-4, 100);
  EXPECT_EQ(cpu_reduce_border_bytes(10, 10, 10, {0.6, 5}), 0U) << "the CPUs would take 2 us a KB";
  EXPECT_EQ(cpu_reduce_border_bytes(4, 4, 4, {0.6, 100}), 32 * kb) << "1.5 times, by CPUs that have time";
  EXPECT_EQ(cpu_reduce_border_bytes(4, 4, 4, {25, 199}), 0U) << "1.5 times was promised before, and not kept";
  EXPECT_EQ(cpu_reduce_border_bytes(3, 3, 3, {0.6, 100}), 0U) << "1.33 times";
  EXPECT_EQ(cpu_reduce_border_bytes(10, 10, 10, {0, 100}), 0U);
  for (std::uint32_t ranks = 5; ranks <= 9; ++ranks)
    EXPECT_GT(cpu_reduce_border_bytes(5, 5, ranks, {3.0 / ranks, 100}), 0U) << "five meet, of " << ranks;
  // With islands, what crosses comes down 2 * 5/6 times, or once if CPUs add. If only six ranks use the links, they
  // cross at 10 GB/s: 0.167 or 0.1 us per KB.
  EXPECT_NEAR(static_cast<double>(cpu_reduce_border_bytes(6, 6, 10, {6, 1000})), 20 / 0.6667e-4, 100);
  EXPECT_EQ(cpu_reduce_border_bytes(6, 6, 10, {0.6, 9}), 0U) << "the CPUs would take 1.1 us a KB";
  EXPECT_EQ(cpu_reduce_border_bytes(6, 12, 12, {0.6, 12}), 32 * kb) << "all cross, at 0.6 GB/s";
  EXPECT_EQ(cpu_reduce_border_bytes(6, 6, 12, {0.6, 12}), 0U) << "half of them: at 1.2 GB/s, adding as fast as before";
  EXPECT_EQ(cpu_reduce_border_bytes(2, 2, 10, {0.6, 100}), 0U);
  EXPECT_EQ(cpu_reduce_border_bytes(10, 10, 10, {0.6, 0}), 0U);
  EXPECT_EQ(cpu_reduce_border_bytes(1, 1, 1, {0.6, 100}), 0U);
}

TEST(Borders, BelongToMachinesOfOneHost) {
  const auto machine = [](std::string_view machine_name) {
    return std::move(place_on_gpus(topology(machine_name), 0)).value();
  };
  EXPECT_EQ(machine("10x-rtx3090").arena, ArenaKind::host);
  EXPECT_NEAR(machine("10x-rtx3090").exchange.gbps, 0.6, 1e-9);
  EXPECT_NEAR(machine("10x-rtx3090").exchange.sums_gbps, 2 * GpuRates{}.host_sums_gbps, 1e-9);
  EXPECT_EQ(machine("4x-rtx-pro-6000").arena, ArenaKind::pcie);
  EXPECT_EQ(machine("4x-h200").arena, ArenaKind::nvlink);
  EXPECT_EQ(machine("2-hosts-10x-rtx3090").arena, std::nullopt);
  using Islands = std::vector<std::vector<std::uint32_t>>;
  EXPECT_EQ(machine("10x-rtx3090-bridged").islands, (Islands{{1, 2}, {3, 4}, {6, 7}, {8, 9}}));
  EXPECT_TRUE(machine("10x-rtx3090").islands.empty());
  EXPECT_TRUE(machine("4x-h200").islands.empty()) << "all are one";
}

}  // namespace
}  // namespace strait
