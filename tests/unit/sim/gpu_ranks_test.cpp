// What GPU ranks do by their own rules, and the times that the clock predicts for it, compared with bytes counted by
// hand, and with measurements on an H100 whose ranks share its link.
#include "sim/gpu_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/device_waves.hpp"
#include "sim/explain.hpp"
#include "topology/builtin_machines.hpp"
#include "topology/json.hpp"
#include "topology/load.hpp"

namespace strait::sim {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t mib = 1 << 20;

Machine gpus(std::string_view machine_name, std::uint32_t ranks = 0) {
  return std::move(place_on_gpus(std::move(load_builtin_machine(machine_name)).value(), ranks)).value();
}

Operation all_reduce(std::size_t bytes, WireFormat wire = WireFormat::off) {
  return {Collective::all_reduce, DataType::float32, ReduceOp::sum, bytes / 4, 0, wire};
}

PredictedPlan choice_of(const Machine& machine, const Operation& operation) {
  auto prediction = predict_ranks(machine, operation);
  EXPECT_TRUE(prediction) << (prediction ? "" : prediction.error().message);
  return std::move(prediction->plans.front());
}

std::vector<std::string> steps_of(const PredictedPlan& plan) {
  std::vector<std::string> steps;
  for (const PredictedStep& step : plan.steps) steps.push_back(step.what);
  return steps;
}

/// Returns the bytes that a plan moves over a resource of rate `gbps`.
double moved(const PredictedPlan& plan, const std::string& resource, double gbps) {
  for (const ResourceUse& use : plan.time.resources)
    if (use.name == resource) return use.busy * plan.time.total_us * gbps * 1e3;
  return 0;
}

TEST(GpuRanks, AddFloatsUpWithinIslandsFirst) {
  EXPECT_THAT(steps_of(choice_of(gpus("10x-rtx3090-bridged"), all_reduce(64 * mib))),
              ElementsAre("reduce of float32 within islands", "all-reduce of float32 across islands",
                          "broadcast of float32 within islands"));
  EXPECT_TRUE(choice_of(gpus("10x-rtx3090"), all_reduce(64 * mib)).steps.empty());
  Operation small = all_reduce(1024);
  small.collective = Collective::all_gather;
  EXPECT_TRUE(choice_of(gpus("10x-rtx3090-bridged"), small).steps.empty()) << "islands carry long copies only";
}

/// Plans that kernels do not implement may be faster, and are listed after the choice.
TEST(GpuRanks, OfOneHostRunWhatKernelsCarryOut) {
  for (const BuiltinMachine& builtin : builtin_machines())
    for (int c = 0; c < collective_count; ++c)
      for (const std::size_t bytes : {4 * mib / 1024, 4 * mib}) {
        Operation operation = all_reduce(bytes);
        operation.collective = static_cast<Collective>(c);
        if (!check(gpus("4x-h200"), operation)) continue;
        const auto topology = load_builtin_machine(builtin.name);
        ASSERT_TRUE(topology);
        const auto some = std::min<std::size_t>(8, topology->all(DeviceKind::gpu).size());
        const auto machine = place_on_gpus(*topology, static_cast<std::uint32_t>(some));
        if (!machine || !machine->arena) continue;
        const auto prediction = predict_ranks(*machine, operation, {}, true);
        ASSERT_TRUE(prediction) << prediction.error().message;
        const PredictedPlan& choice = prediction->choice();
        const auto what = std::string(builtin.name) + ": " + std::string(name(operation.collective));
        EXPECT_TRUE(choice.runs && (is_carried_out(choice) || !choice.steps.empty())) << what << choice.algorithm;
        for (const PredictedPlan& plan : prediction->plans)
          EXPECT_FALSE(plan.runs && plan.steps.empty() && !is_carried_out(plan)) << what << plan.algorithm;
      }
}

TEST(GpuRanks, WhatTheyDoNotRunIsSaid) {
  const auto why = [](std::string_view machine_name, Collective collective, std::size_t bytes,
                      const std::string& algorithm = "") {
    Operation operation = all_reduce(bytes);
    operation.collective = collective;
    SelectOptions options;
    options.algorithm = algorithm;
    return predict_ranks(gpus(machine_name), operation, options)->why;
  };
  const auto never = HasSubstr("GPU ranks never run it"), hops = HasSubstr("GPU ranks take two hops");
  const auto hosts = HasSubstr("GPU ranks of several hosts are not predicted");
  EXPECT_THAT(why("4x-rtx-pro-6000", Collective::all_reduce, mib, "peer_push"), never);
  EXPECT_THAT(why("4x-rtx-pro-6000", Collective::all_reduce, mib, "two_hop"), Not(never));
  EXPECT_THAT(why("4x-rtx-pro-6000", Collective::all_reduce, mib), Not(AnyOf(never, hops, hosts)));
  EXPECT_THAT(why("4x-rtx-pro-6000", Collective::broadcast, 4 * mib), hops);
  EXPECT_THAT(why("4x-h200", Collective::reduce, 4 * mib), hops);
  EXPECT_THAT(why("4x-h200", Collective::reduce, 4096), Not(hops));
  EXPECT_THAT(why("4x-h200-no-p2p", Collective::broadcast, 4 * mib), Not(hops));
  EXPECT_THAT(why("2-hosts-10x-rtx3090", Collective::all_reduce, mib), hosts);
}

TEST(GpuRanks, PlansThatNoKernelCarriesOutAreMarked) {
  const auto text = [](const std::string& algorithm) {
    return to_text(*explain({"4x-rtx-pro-6000", 0, false}, {}, 64 << 20, algorithm));
  };
  EXPECT_THAT(text(""), testing::ContainsRegex("\npeer_push .* no kernel carries it out: GPU ranks never run it\n"));
  EXPECT_THAT(text(""), testing::ContainsRegex("\nchoice    (staged|two_hop) by GPU"));
  EXPECT_THAT(text("peer_push"), HasSubstr(" asked for; GPU ranks never run it\n"));
}

TEST(GpuRanks, CallsThatIslandsDoNotCarryUseNoBridge) {
  Operation all_to_all = all_reduce(mib / 16);
  all_to_all.collective = Collective::all_to_all;
  const Machine machine = gpus("10x-rtx3090-bridged");
  EXPECT_EQ(moved(choice_of(machine, all_to_all), "host0/gpu1 -> host0/gpu2", 56), 0);
  EXPECT_GT(moved(choice_of(machine, all_reduce(mib)), "host0/gpu1 -> host0/gpu2", 56), 0.99 * mib);
}

TEST(GpuRanks, PlansOfStepsBearTheNameOfTheCall) {
  const PredictedPlan islands = choice_of(gpus("10x-rtx3090-bridged"), all_reduce(mib));
  EXPECT_EQ(islands.plan.front().collective, Collective::all_reduce);
  EXPECT_EQ(islands.plan.front().algorithm, "islands");
  EXPECT_EQ(islands.plan.front().ranks, 10U);
}

TEST(GpuRanks, AStepBeginsWhenTheOneBeforeHasEnded) {
  const PredictedPlan plan = choice_of(gpus("10x-rtx3090-bridged"), all_reduce(mib));
  ASSERT_EQ(plan.steps.size(), 3U);
  double border_us = 0;
  for (const PredictedStep& step : plan.steps) {
    border_us += step.time_us;
    const auto is_of_both = [&](const TimedStep& timed) {
      return timed.begin_us < border_us - 1e-3 && timed.end_us > border_us + 1e-3;
    };
    EXPECT_EQ(std::count_if(plan.time.timeline.begin(), plan.time.timeline.end(), is_of_both), 0) << step.what;
  }
}

/// Blocks have 1 MB each, and counts are in blocks. A pair moves one over its bridge. In an all-to-all, the five ranks
/// behind a port read 41 from other islands; a root, which has a partner, receives or sends eight.
TEST(GpuRanks, ExchangesCrossBridgesWithinIslands) {
  const Machine machine = gpus("10x-rtx3090-bridged");
  Operation exchange = all_reduce(mib);
  exchange.root = 1;
  const auto expect = [&](Collective collective, const char* bridge, const char* port, double blocks) {
    exchange.collective = collective;
    const PredictedPlan plan = choice_of(machine, exchange);
    EXPECT_NEAR(moved(plan, bridge, 56) / mib, 1, 0.01) << name(collective);
    EXPECT_NEAR(moved(plan, port, 3) / mib / blocks, 1, 0.03) << name(collective);
    EXPECT_THAT(steps_of(plan), ElementsAre(std::string(name(collective)) + " of float32 within islands",
                                            std::string(name(collective)) + " of float32 between all"));
  };
  const char *const down = "host0/numa0 -> host0/port0", *const up = "host0/port0 -> host0/numa0";
  expect(Collective::all_to_all, "host0/gpu1 -> host0/gpu2", down, 41);
  expect(Collective::gather, "host0/gpu2 -> host0/gpu1", down, 8);
  expect(Collective::scatter, "host0/gpu1 -> host0/gpu2", up, 8);
}

/// Five of ten ranks, which share a port, read nine tenths twice; three of six islands read five sixths twice.
TEST(GpuRanks, AWireFormatsBytesCrossInTwoHops) {
  constexpr double bytes = 64.0 * mib;
  for (const auto& [wire, share] : {std::pair(WireFormat::int8, 8.25 / 32), std::pair(WireFormat::fp8, 8.25 / 32),
                                    std::pair(WireFormat::int4, 4.25 / 32)}) {
    const auto down = [&, format = wire](const char* machine_name) {
      return moved(choice_of(gpus(machine_name), all_reduce(64 * mib, format)), "host0/numa0 -> host0/port0", 3);
    };
    EXPECT_NEAR(down("10x-rtx3090") / (5 * 1.8 * share * bytes), 1, 0.01) << name(wire);
    EXPECT_NEAR(down("10x-rtx3090-bridged") / (3 * 2 * 5 / 6.0 * share * bytes), 1, 0.01) << name(wire);
  }
}

/// Short calls are encoded in scratch, long ones while they are sent. The border depends on the links.
TEST(GpuRanks, KernelsEncodeAndDecode) {
  EXPECT_THAT(steps_of(choice_of(gpus("4x-h200"), all_reduce(4 * mib, WireFormat::int8))),
              ElementsAre("encode", "all-to-all of uint8 between all", "add up and encode",
                          "all-gather of uint8 between all", "decode"));
  EXPECT_THAT(steps_of(choice_of(gpus("4x-h200"), all_reduce(64 * mib, WireFormat::int8))),
              ElementsAre("all-reduce of int8 between all"));
  EXPECT_THAT(steps_of(choice_of(gpus("10x-rtx3090"), all_reduce(1 * mib, WireFormat::int8))),
              ElementsAre("all-reduce of int8 between all"));
}

/// Sums are encoded again before they are sent on.
TEST(GpuRanks, EncodedSumsTakeTwoHopsHoweverShort) {
  const PredictedPlan plan = choice_of(gpus("10x-rtx3090-bridged"), all_reduce(16 << 10, WireFormat::int8));
  ASSERT_EQ(plan.steps.size(), 3U);
  EXPECT_EQ(plan.steps[1].what, "all-reduce of int8 across islands");
  EXPECT_EQ(plan.steps[1].algorithm, "two_hop");
}

TEST(GpuRanks, WireFormatsThatCannotBeAreErrors) {
  const auto message = [](std::string_view machine_name, const Operation& operation,
                          const std::string& algorithm = "") {
    SelectOptions options;
    options.algorithm = algorithm;
    const auto prediction = predict_ranks(gpus(machine_name), operation, options);
    return prediction ? "" : prediction.error().message;
  };
  Operation whole = all_reduce(mib, WireFormat::int8);
  EXPECT_THAT(message("2-hosts-10x-rtx3090", whole), HasSubstr("one host"));
  EXPECT_THAT(message("10x-rtx3090", whole, "ring"), HasSubstr("Leave out the algorithm"));
  whole.type = DataType::int32;
  EXPECT_THAT(message("10x-rtx3090", whole), HasSubstr("not int32"));
}

/// Returns a machine whose ranks share one GPU and its link. Its rates are those of other calls
/// (perf/results/shared_link_1xh100.json): ten ranks receive 48 GB/s down the link in an all-gather, and 64 GB/s in all
/// pass through memory in a reduce-scatter.
Machine shared_link(std::uint32_t ranks, const std::vector<Island>& islands) {
  std::string links;
  for (const Island& pair : islands)
    links += std::string(links.empty() ? "" : ",") + R"({"kind": "nvlink", "from": "gpu)" + std::to_string(pair[0]) +
             R"(", "to": "gpu)" + std::to_string(pair[1]) + R"(", "gbps": 200, "us": 0.5})";
  const std::string text = R"({"strait_topology": 1, "name": "shared link", "hosts": [{"name": "host0", "p2p": "CNS",
      "devices": [{"name": "numa0", "kind": "numa", "memory_gbps": 64},
                  {"name": "switch0", "kind": "pcie_switch", "parent": "numa0", "link": {"gbps": 48, "us": 0.3}},
                  {"name": "gpu{i}", "copies": )" +
                           std::to_string(ranks) + R"(, "kind": "gpu", "parent": "switch0",
                   "link": {"gbps": 1000, "us": 0.2}}], "links": [)" +
                           links + "]}]}";
  const auto topology = parse_topology_json(text, "test");
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  GpuRates rates;
  rates.copy_gbps = 2000.0 / ranks;  // the ranks share one GPU's memory
  Machine machine = std::move(place_on_gpus(*topology, ranks, rates)).value();
  machine.exchange.sums_gbps = 0;           // there, kernels added
  machine.encoded_bytes = ~std::size_t{0};  // and encoded in scratch
  return machine;
}

struct Measured {
  std::uint32_t ranks;
  std::vector<Island> islands;
  WireFormat wire;
  double measured_us;  ///< of 64 MB, in graphs: the mean of both runs in perf/results/shared_link_wire_1xh100.json
};

/// docs/simulation.md states these errors of prediction.
TEST(SharedLink, LargeAllReducesArePredictedAsMeasured) {
  const std::vector<Island> bridges{{1, 2}, {3, 4}, {6, 7}, {8, 9}}, pairs{{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const WireFormat off = WireFormat::off, int8 = WireFormat::int8;
  for (const Measured& m :
       {Measured{10, {}, off, 29744}, Measured{10, {}, int8, 11160}, Measured{10, bridges, off, 18521},
        Measured{10, bridges, int8, 8729}, Measured{8, {}, off, 21488}, Measured{8, {}, int8, 8425},
        Measured{8, pairs, off, 9635}, Measured{8, pairs, int8, 4638}}) {
    const double predicted_us = choice_of(shared_link(m.ranks, m.islands), all_reduce(64 * mib, m.wire)).time.total_us;
    const double ratio = predicted_us / m.measured_us;
    const auto what = std::to_string(m.ranks) + " ranks, " + std::to_string(m.islands.size()) + " islands, " +
                      std::string(name(m.wire)) + ": predicted " + std::to_string(predicted_us);
    // The kernels that encode have few thread blocks there, which the clock does not model.
    EXPECT_GT(ratio, m.wire == off ? 0.9 : 0.65) << what;
    EXPECT_LT(ratio, m.wire == off ? 1.15 : 0.9) << what;
    RecordProperty(std::to_string(m.ranks) + "_" + std::to_string(m.islands.size()) + "_" + std::string(name(m.wire)),
                   std::to_string(ratio));
  }
}

}  // namespace
}  // namespace strait::sim
