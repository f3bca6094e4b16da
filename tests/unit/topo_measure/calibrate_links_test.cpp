#include "doctor/calibrate_links.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "doctor/check_calibration.hpp"
#include "doctor/measure_host_sums.hpp"
#include "select/known_exchange.hpp"
#include "select/link_rates.hpp"
#include "sim/machine_model.hpp"
#include "topo/measurements.hpp"
#include "topology/builtin_machines.hpp"
#include "topology/json.hpp"

namespace strait::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

/// Returns the fake driver's machine without NVLink; its host is called `host`.
Topology machine(const std::string& host = "host0", const std::string& second_bus_id = "0000:42:00.0") {
  auto topology =
      parse_topology_json(R"({"strait_topology": 1, "name": "fake", "hosts": [{"name": ")" + host + R"(", "devices": [
      {"name": "numa0", "kind": "numa", "cpus": "0-3", "memory_gbps": 40},
      {"name": "port0", "kind": "root_port", "parent": "numa0", "link": {"gbps": 24, "us": 0.3}},
      {"name": "gpu0", "kind": "gpu", "parent": "port0", "bus_id": "0000:41:00.0", "link": {"gbps": 12, "us": 0.3}},
      {"name": "gpu1", "kind": "gpu", "parent": "port0", "bus_id": ")" +
                              second_bus_id + R"(", "link": {"gbps": 12, "us": 0.3}}], "p2p": "CNS"}]})",
                          "test");
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  return std::move(topology).value();
}

KnownRates known(const std::string& fingerprint, std::vector<LinkRate> rates) {
  KnownRates known{{}, "machine.json", true, {}, {}};
  known.links[fingerprint] = std::move(rates);
  return known;
}

TEST(CalibratedLinks, AreThoseOfTheMachineAndChangeWhatIsPredicted) {
  const Topology before = machine();
  const auto links = measure_links(before, "test", FAKE_CUDA_GOOD);
  ASSERT_TRUE(links) << links.error().message;
  EXPECT_EQ(links->machine, topology_fingerprint(before));
  EXPECT_THAT(links_text(before, *links), HasSubstr("gpu0 -> port0"));
  const Topology after = with_known_rates(before, known(links->machine, links->rates));
  const DeviceId gpu0 = *after.find("host0/gpu0"), numa = *after.find("host0/numa0");
  EXPECT_LT(after.path(gpu0, numa).bandwidth_gbps, 12) << "the driver gives 8 GB/s, and both share them";
  EXPECT_THAT(after.data().notes, Contains(HasSubstr("machine.json")));
  const auto assumed = place_on_gpus(before, 0), measured = place_on_gpus(after, 0);
  ASSERT_TRUE(assumed && measured);
  const auto slowest = [](const Machine& m) {
    double least = 1e9;
    for (const ClockResource& resource : m.clock.resources) least = std::min(least, resource.gbps);
    return least;
  };
  EXPECT_LT(slowest(*measured), slowest(*assumed));
}

TEST(CalibratedGpus, TellWhatKernelsTakeAndChangeWhatIsPredicted) {
  const Topology topology = machine();
  const auto rates = topo::measure_kernels(topology, FAKE_CUDA_GOOD);
  ASSERT_TRUE(rates) << rates.error().message;
  // Never faster than what the fake driver takes, but slower on a busy machine.
  EXPECT_THAT(rates->call_us, AllOf(Ge(2), Le(20)));
  const DeviceId gpu0 = *topology.find("host0/gpu0"), gpu1 = *topology.find("host0/gpu1");
  const double way_us = topology.path(gpu0, gpu1).latency_us;
  EXPECT_GT(way_us, 0);
  EXPECT_THAT(rates->step_us, AllOf(Ge(4 - way_us - 1e-3), Le(40)));
  EXPECT_THAT(rates->copy_gbps, AllOf(Le(1001), Ge(100)));
  EXPECT_THAT(rates->reduce_gbps, AllOf(Le(1001), Ge(100)));  // counting both sources
  KnownRates known{{}, "machine.json", true, {}, {}};
  known.gpus[topology_fingerprint(topology)] = *rates;
  EXPECT_EQ(known_gpu_rates(topology, known), *rates);
  EXPECT_EQ(known_gpu_rates(machine("host0", "0000:43:00.0"), known), GpuRates{});
  const auto placed = place_on_gpus(topology, 0, known_gpu_rates(topology, known));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->clock.step_us, rates->step_us);
  EXPECT_EQ(placed->clock.copy_gbps, rates->copy_gbps);
}

/// What communicators look up when they are made.
TEST(CalibratedGpus, TellWhatAllExchangeAtOnce) {
  const Topology topology = machine();
  const std::vector<std::string> both{"0000:41:00.0", "0000:42:00.0"};
  KnownRates known{{}, "machine.json", true, {}, {}};
  EXPECT_EQ(known_exchange_rates(topology, known, both, true).gbps, 0) << "only assumed";
  const std::string own = topology_fingerprint(topology);
  known.links[own] = {{"gpu0", "port0", 8, 0, "alone"}, {"port0", "gpu0", 10, 0, "alone"},
                      {"gpu1", "port0", 8, 0, "alone"}, {"port0", "gpu1", 10, 0, "alone"},
                      {"port0", "numa0", 9, 0, "all"},  {"numa0", "port0", 11, 0, "all"}};
  const ExchangeRates without_sums = known_exchange_rates(topology, known, both, true);
  EXPECT_DOUBLE_EQ(without_sums.gbps, 4.5) << "both share the 9 GB/s up to the memory";
  EXPECT_EQ(without_sums.sums_gbps, 0);
  EXPECT_FALSE(without_sums.is_fixed_by_user) << "what they share without PCIe showing it is not seen";
  known.gpus[own].host_sums_gbps = 50;
  EXPECT_EQ(known_exchange_rates(topology, known, both, true).sums_gbps, 50);
  const std::vector<std::string> as_drivers_write{"0000:41:00.0", "00000000:42:00.0"};
  EXPECT_EQ(known_exchange_rates(topology, known, as_drivers_write, true).gbps, without_sums.gbps);
  EXPECT_EQ(known_exchange_rates(topology, known, {"0000:41:00.0", "0000:99:00.0"}, true).gbps, 0)
      << "another machine's";
}

TEST(Doctor, AsksForWhatHasNotBeenMeasured) {
  KnownRates known{{}, "machine.json", true, {}, {}};
  const auto severity = [&](std::string_view machine_name) -> std::optional<Severity> {
    const Findings found = check_calibration(std::move(load_builtin_machine(machine_name)).value(), known);
    return found.empty() ? std::nullopt : std::optional(found.front().severity);
  };
  for (const auto& [machine_name, expected] : {std::pair("10x-rtx3090", std::optional(Severity::warning)),
                                               {"10x-rtx3090-bridged", Severity::warning},
                                               {"4x-rtx-pro-6000", Severity::note},
                                               {"4x-h200", std::nullopt},
                                               {"laptop", std::nullopt}})
    EXPECT_EQ(severity(machine_name), expected) << machine_name;
  const Topology rtx = std::move(load_builtin_machine("10x-rtx3090")).value();
  known.links[topology_fingerprint(rtx)] = {{"gpu0", "switch0", 3, 0, "test"}};
  EXPECT_EQ(severity("10x-rtx3090"), Severity::ok);
}

TEST(CalibratedGpus, TellWhatCpusAddUp) {
  // The bounds are far beyond what any core copies from DRAM, because sanitizers slow down everything.
  EXPECT_THAT(measure_host_sums_gbps(machine()), AllOf(Ge(0.05), Le(2000)));
  const auto laptop = load_builtin_machine("laptop");
  ASSERT_TRUE(laptop);
  EXPECT_EQ(measure_host_sums_gbps(*laptop), 0) << "no GPU";
}

TEST(CalibratedGpus, ADriverWithoutItsCompilerIsTold) {
  const auto rates = topo::measure_kernels(machine(), FAKE_CUDA_NO_COMPILER);
  ASSERT_FALSE(rates);
  EXPECT_EQ(rates.error().code, Code::unsupported);
  EXPECT_THAT(rates.error().message, HasSubstr("compiling kernels for GPU 0"));
}

TEST(CalibratedGpus, AStuckGpuIsAnError) {
  const auto rates = topo::measure_kernels(machine(), FAKE_CUDA_STUCK, 50);
  ASSERT_FALSE(rates);
  EXPECT_EQ(rates.error().code, Code::timeout);
}

TEST(CalibratedLinks, AreThereUnderAnotherHostNameButNotWithOtherGpus) {
  const std::string fingerprint = topology_fingerprint(machine());
  EXPECT_EQ(topology_fingerprint(machine("node7")), fingerprint);
  EXPECT_NE(topology_fingerprint(machine("host0", "0000:43:00.0")), fingerprint);
  const KnownRates rates = known(fingerprint, {{"gpu0", "port0", 3, 0, "test"}});
  EXPECT_EQ(with_known_rates(machine("node7"), rates).data().calibrations.size(), 1U);
  EXPECT_TRUE(with_known_rates(machine("host0", "0000:43:00.0"), rates).data().calibrations.empty());
}

TEST(CalibratedLinks, ThatDoNotFitAreLeftOut) {
  const KnownRates rates = known(topology_fingerprint(machine()), {{"gpu9", "port0", 3, 0, "test"}});
  EXPECT_EQ(with_known_rates(machine(), rates).data(), machine().data());
}

TEST(CalibratedLinks, WithoutADriverSayWhatIsMissing) {
  const auto links = measure_links(machine(), "test", "/nonexistent/libcuda.so.1");
  ASSERT_FALSE(links);
  EXPECT_EQ(links.error().code, Code::unsupported);
}

}  // namespace
}  // namespace strait::doctor
