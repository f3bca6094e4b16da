#include "sim/machine_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/builtin_machines.hpp"
#include "topology/json.hpp"

namespace strait {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using Names = std::vector<std::string>;

Topology topology(std::string_view machine_name) { return std::move(load_builtin_machine(machine_name)).value(); }

Machine gpus(std::string_view machine_name, std::uint32_t ranks = 0) {
  auto machine = place_on_gpus(topology(machine_name), ranks);
  EXPECT_TRUE(machine) << (machine ? "" : machine.error().message);
  return std::move(machine).value();
}

Names crossed(const ClockModel& clock, const std::vector<ClockPath>& paths, std::uint32_t from, std::uint32_t to) {
  Names names;
  for (const std::uint16_t resource : paths[from * clock.ranks + to].resources)
    names.push_back(clock.resources[resource].name);
  return names;
}

TEST(MachineModel, WithoutP2pAWriteGoesUpToMemoryAndAReadComesDownFromIt) {
  const Machine machine = gpus("10x-rtx3090");
  const ClockModel& clock = machine.clock;
  EXPECT_THAT(crossed(clock, clock.writes, 0, 1),
              ElementsAre("host0/gpu0 -> host0/switch0", "host0/switch0 -> host0/port0", "host0/port0 -> host0/numa0",
                          "host0/numa0 memory"));
  EXPECT_THAT(crossed(clock, clock.paths, 0, 1),
              ElementsAre("host0/numa0 memory", "host0/numa0 -> host0/port0", "host0/port0 -> host0/switch0",
                          "host0/switch0 -> host0/gpu1"));
  // Data for the other socket is stored in the memory beside the writer.
  EXPECT_THAT(crossed(clock, clock.paths, 0, 9),
              ElementsAre("host0/numa0 memory", "host0/numa0 -> host0/numa1", "host0/numa1 -> host0/port1",
                          "host0/port1 -> host0/switch1", "host0/switch1 -> host0/gpu9"));
  EXPECT_FALSE(machine.request.peer_memory);
  EXPECT_TRUE(machine.request.multicast);
}

TEST(MachineModel, ABridgeIsUsedBetweenItsTwoAndTheHostBetweenOthers) {
  const Machine machine = gpus("10x-rtx3090-bridged");
  EXPECT_THAT(crossed(machine.clock, machine.clock.writes, 1, 2), ElementsAre());
  EXPECT_THAT(crossed(machine.clock, machine.clock.paths, 1, 2), ElementsAre("host0/gpu1 -> host0/gpu2"));
  EXPECT_THAT(crossed(machine.clock, machine.clock.writes, 2, 3), testing::Contains("host0/port0 -> host0/numa0"));
  const auto& levels = machine.request.shape.levels;
  ASSERT_GE(levels.size(), 2U);
  EXPECT_THAT(levels[0], ElementsAre(0, 1, 1, 2, 2, 3, 4, 4, 5, 5)) << "pairs, and two without a partner";
  EXPECT_THAT(levels[1], ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 1, 1)) << "NUMA nodes";
}

TEST(MachineModel, P2pIsPulledByTheReader) {
  const Machine machine = gpus("4x-rtx-pro-6000");
  EXPECT_TRUE(machine.request.peer_memory);
  EXPECT_FALSE(machine.host_sums.has_value());
  EXPECT_THAT(crossed(machine.clock, machine.clock.writes, 0, 3), ElementsAre());
  EXPECT_THAT(crossed(machine.clock, machine.clock.paths, 0, 3), testing::Contains("host0/numa0 -> host0/numa1"));
}

TEST(MachineModel, BetweenHostsWithoutGpuDirectBytesPassBothMemories) {
  const Machine machine = gpus("2-hosts-10x-rtx3090");
  EXPECT_THAT(crossed(machine.clock, machine.clock.writes, 0, 19).back(), "host0/numa0 memory");
  const Names read = crossed(machine.clock, machine.clock.paths, 0, 19);
  EXPECT_EQ(read.front(), "host0/numa0 memory");
  EXPECT_THAT(read,
              testing::IsSupersetOf({"host0/bond0 -> ethernet", "ethernet -> host1/bond0", "host1/numa1 memory"}));
}

TEST(MachineModel, RanksAreTheFirstGpusInOrder) {
  const Machine machine = gpus("10x-rtx3090", 6);
  EXPECT_THAT(machine.places,
              ElementsAre("host0/gpu0", "host0/gpu1", "host0/gpu2", "host0/gpu3", "host0/gpu4", "host0/gpu5"));
  EXPECT_EQ(machine.clock.paths.size(), 36U);
  EXPECT_THAT(machine.request.shape.levels, Each(testing::SizeIs(6)));
  EXPECT_EQ(gpus("nvl72").request.ranks, 72U);
}

TEST(MachineModel, BadPlacesAreErrorsThatSayWhatToDo) {
  const auto many = place_on_gpus(topology("10x-rtx3090"), 11);
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message, AllOf(HasSubstr("11 ranks"), HasSubstr("10 GPUs"), HasSubstr("fewer")));
  const auto none = place_on_gpus(topology("laptop"), 0);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("has no GPU"));
  EXPECT_FALSE(place_on_cpus(topology("laptop"), 100000));
  const auto apart = parse_topology_json(
      R"({"strait_topology": 1, "name": "apart", "hosts": [{"name": "host{host}", "copies": 2, "devices": [
          {"name": "numa0", "kind": "numa"}, {"name": "gpu0", "kind": "gpu", "parent": "numa0",
           "link": {"gbps": 12, "us": 1}}]}]})",
      "test");
  ASSERT_TRUE(apart) << apart.error().message;
  const auto unreachable = place_on_gpus(*apart, 0);
  ASSERT_FALSE(unreachable);
  EXPECT_THAT(unreachable.error().message,
              AllOf(HasSubstr("no path from 'host0/gpu0' to 'host1/gpu0'"), HasSubstr("NIC")));
}

TEST(MachineModel, HostRanksShareTheCpusAndTheDram) {
  const auto machine = place_on_cpus(topology("laptop"), 0);
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->request.ranks, 8U) << "CPUs 0-7";
  EXPECT_EQ(machine->clock.cores, 8U);
  EXPECT_DOUBLE_EQ(machine->clock.dram_gbps, 10) << "a copy moves three bytes over 30 GB/s";
  const auto two_sockets = place_on_cpus(topology("4x-h200"), 4);
  ASSERT_TRUE(two_sockets);
  EXPECT_THAT(two_sockets->places, UnorderedElementsAre("host0/numa0", "host0/numa0", "host0/numa1", "host0/numa1"));
  EXPECT_THAT(crossed(two_sockets->clock, two_sockets->clock.paths, 0, 1), ElementsAre("host0/numa0 -> host0/numa1"));
}

class HostSums : public testing::Test {
 protected:
  HostSums() {
    request_.ranks = 4;
    plan_ = build_all(*find_algorithm("staged"), request_);
  }
  PlanRequest request_;
  Plan plan_;
};

TEST_F(HostSums, OnlyTheLanesThatAddMove) {
  ASSERT_TRUE(has_host_sums(plan_));
  const Plan split = with_host_sums(plan_);
  ASSERT_EQ(split.size(), 8U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(split[rank].lanes.size(), 2U);
    ASSERT_EQ(split[4 + rank].lanes.size(), 1U);
    const Step& sum = split[4 + rank].lanes[0].steps.at(0);
    EXPECT_TRUE(sum.reduces && sum.final);
    // It reads the GPU's own part and writes its result directly, and takes the other parts from their slots.
    EXPECT_EQ(sum.sources[rank].kind, Operand::Kind::peer);
    EXPECT_EQ(sum.sources[rank].peer, rank);
    EXPECT_EQ(sum.destinations[0].kind, Operand::Kind::peer);
    for (const LinkEnd& link : split[4 + rank].links)
      if (link.sends && link.writer == 4 + rank) {
        EXPECT_THAT(link.readers, Each(testing::Lt(4U)));
      }
  }
}

TEST_F(HostSums, EveryGpuWritesItsInputOnceAndReadsTheResultOnce) {
  const Machine machine = gpus("10x-rtx3090", 4);
  ASSERT_TRUE(machine.host_sums);
  constexpr std::size_t bytes = 64 << 20;
  const ClockSize size{.count = bytes / 4, .element_bytes = 4, .slice_bytes = bytes};
  const auto time = simulate(with_host_sums(plan_), size, *machine.host_sums);
  ASSERT_TRUE(time) << time.error().message;
  for (const ResourceUse& use : time->resources)
    for (const char* link : {"host0/gpu2 -> host0/switch0", "host0/switch0 -> host0/gpu2"})
      if (use.name == link) {
        EXPECT_NEAR(use.busy * time->total_us * 12e3, bytes, 0.001 * bytes) << link;
      }
  // If the GPUs add, they also read the parts of all others: 2 x 3/4 of the bytes come down.
  const auto on_gpus = simulate(plan_, size, machine.clock);
  ASSERT_TRUE(on_gpus);
  for (const ResourceUse& use : on_gpus->resources)
    if (use.name == "host0/switch0 -> host0/gpu2") {
      EXPECT_NEAR(use.busy * on_gpus->total_us * 12e3, 1.5 * bytes, 0.001 * bytes);
    }
}

TEST_F(HostSums, ABridgedPairWritesItsSumOnceAndReadsTheResultOnce) {
  const Machine machine = gpus("10x-rtx3090-bridged");
  ASSERT_TRUE(machine.host_sums);
  const Plan plan = build_all(*find_algorithm("multi_leader"), machine.request);
  ASSERT_TRUE(has_host_sums(plan));
  constexpr std::size_t bytes = 64 << 20;
  const ClockSize size{.count = bytes / 4, .element_bytes = 4, .slice_bytes = bytes};
  const auto time = simulate(with_host_sums(plan), size, *machine.host_sums);
  ASSERT_TRUE(time) << time.error().message;
  const auto moved = [&](const std::string& link, double gbps) {
    for (const ResourceUse& use : time->resources)
      if (use.name == link) return use.busy * time->total_us * gbps * 1e3;
    return 0.0;
  };
  const double s = bytes, near = 0.001 * bytes;
  for (const char* port : {"host0/switch0 -> host0/port0", "host0/port0 -> host0/switch0"})
    EXPECT_NEAR(moved(port, 3), 3 * s, near) << port << ": one alone and two pairs";
  for (const auto& [up, down] : {std::pair("gpu3 -> host0/switch0", "switch0 -> host0/gpu3"),
                                 std::pair("gpu4 -> host0/switch0", "switch0 -> host0/gpu4")}) {
    EXPECT_NEAR(moved(std::string("host0/") + up, 12), s / 2, near) << "each of a pair leads for half of the chunks";
    EXPECT_NEAR(moved(std::string("host0/") + down, 12), s / 2, near);
  }
  // Inputs for the other GPU's half, and the results of that half back.
  EXPECT_NEAR(moved("host0/gpu3 -> host0/gpu4", 56), s, near);
  EXPECT_NEAR(moved("host0/gpu4 -> host0/gpu3", 56), s, near);
}

TEST_F(HostSums, PlansThatAddInTheirOnlyLaneStayWhereTheyAre) {
  EXPECT_FALSE(has_host_sums(build_all(*find_algorithm("two_hop"), request_)));
  EXPECT_FALSE(has_host_sums(build_all(*find_algorithm("peer_two_hop"), request_)));
  request_.collective = Collective::all_gather;
  EXPECT_FALSE(has_host_sums(build_all(*find_algorithm("staged"), request_)));
}

}  // namespace
}  // namespace strait
