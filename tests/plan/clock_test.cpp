#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "plan/clock.hpp"
#include "plan/request.hpp"
#include "requests.hpp"

namespace strait {
namespace {

Plan plan_of(std::string_view algorithm, Collective collective, std::uint32_t ranks, bool peer_memory = false) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = ranks;
  request.peer_memory = peer_memory;
  return build_all(*find_algorithm(algorithm), request);
}

/// A model with round numbers in which ranks share no resource.
ClockModel plain_model(std::uint32_t ranks) {
  HostRates rates;
  rates.call_us = 0;
  rates.memory = {};
  rates.step_us = 1;
  rates.latency_us = 10;
  rates.copy_gbps = 1;  // 1000 bytes a microsecond
  rates.reduce_gbps = 2;
  rates.dram_copy_gbps = 0;
  return host_model(ranks, 0, rates);
}

double time_us(const Plan& plan, const ClockSize& size, const ClockModel& model) {
  const auto result = simulate(plan, size, model);
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->total_us : 0;
}

TEST(Clock, AddsUpOneTransfer) {
  // Root: 1 + 1 (1000 bytes) + 0.5 (second destination). Link: 10. Reader: 1 + 1.
  const Plan plan = plan_of("one_hop", Collective::broadcast, 2);
  EXPECT_DOUBLE_EQ(time_us(plan, {.count = 1000}, plain_model(2)), 2.5 + 10 + 2);
}

TEST(Clock, AddsUpOneReduction) {
  // Send 1 + 1, link 10, reduce 1 + 2000 bytes at 2 GB/s.
  const Plan plan = plan_of("one_hop", Collective::all_reduce, 2);
  EXPECT_DOUBLE_EQ(time_us(plan, {.count = 1000}, plain_model(2)), 2 + 10 + 2);
}

TEST(Clock, ABarrierTakesALatencyARound) {
  for (const std::uint32_t ranks : {2U, 4U, 8U, 16U}) {
    const double rounds = ranks == 2 ? 1 : ranks == 4 ? 2 : ranks == 8 ? 3 : 4;
    EXPECT_NEAR(time_us(plan_of("barrier", Collective::barrier, ranks), {}, plain_model(ranks)), rounds * 11 + 1, 1e-6);
  }
}

TEST(Clock, AnEmptyOperationTakesNoTime) {
  EXPECT_EQ(time_us(plan_of("ring", Collective::all_reduce, 4), {.count = 0}, plain_model(4)), 0);
}

TEST(Clock, SlicesOverlapAlongAChain) {
  const Plan plan = plan_of("ring", Collective::broadcast, 8);
  const ClockModel model = plain_model(8);
  const double whole = time_us(plan, {.count = 64000, .element_bytes = 1, .slice_bytes = 64000}, model);
  const double sliced = time_us(plan, {.count = 64000, .element_bytes = 1, .slice_bytes = 8000}, model);
  EXPECT_LT(sliced, whole / 2);
}

TEST(Clock, ManySlicesAreExtrapolated) {
  const Plan plan = plan_of("ring", Collective::all_reduce, 4);
  const ClockModel model = host_model(4, 4);
  const auto few = simulate(plan, {.count = 16 << 20, .element_bytes = 4, .slice_bytes = 256 << 10}, model);
  const auto many = simulate(plan, {.count = 64 << 20, .element_bytes = 4, .slice_bytes = 256 << 10}, model);
  ASSERT_TRUE(few && many);
  EXPECT_EQ(many->simulated_slices, 8U);
  EXPECT_EQ(many->slices, 4 * few->slices);
  EXPECT_NEAR(many->total_us / few->total_us, 4, 0.8);
}

TEST(Clock, RanksShareDramBeyondTheCache) {
  const Plan plan = plan_of("one_hop", Collective::all_gather, 4);
  HostRates rates;
  rates.memory = {};  // only the rate that all ranks share
  const auto small = simulate(plan, {.count = 64 << 10}, host_model(4, 4, rates));
  const auto large = simulate(plan, {.count = 64 << 20}, host_model(4, 4, rates));
  ASSERT_TRUE(small && large);
  EXPECT_NE(small->binding, "dram");
  EXPECT_EQ(large->binding, "dram");
  EXPECT_GT(large->resources[1].busy, 0.9);
  rates.dram_copy_gbps *= 2;
  const auto faster = simulate(plan, {.count = 64 << 20}, host_model(4, 4, rates));
  ASSERT_TRUE(faster);
  EXPECT_LT(faster->total_us, 0.75 * large->total_us);
}

TEST(Clock, RanksShareCores) {
  const Plan plan = plan_of("one_hop", Collective::all_reduce, 8);
  HostRates rates;
  rates.switch_us = 0;
  rates.memory = {};  // otherwise ranks on one core would also save the transfer from another core's cache
  const double on_eight = time_us(plan, {.count = 256 << 10}, host_model(8, 8, rates));
  const double on_two = time_us(plan, {.count = 256 << 10}, host_model(8, 2, rates));
  EXPECT_NEAR(on_two / on_eight, 4, 0.5);
  rates.switch_us = 100;
  EXPECT_GT(time_us(plan, {.count = 256 << 10}, host_model(8, 2, rates)), on_two + 100);
  EXPECT_DOUBLE_EQ(time_us(plan, {.count = 256 << 10}, host_model(8, 8, rates)), on_eight);
}

TEST(Clock, BytesCrossTheResourcesOfTheirPath) {
  // All ranks write through one port of 1 GB/s: 4 * 1000 bytes take at least 4 us, though each rank alone has 1 GB/s.
  const Plan plan = plan_of("one_hop", Collective::all_gather, 4);
  ClockModel model = plain_model(4);
  model.copy_gbps = 4;
  const double alone = time_us(plan, {.count = 100000}, model);
  model.resources = {{"root port", 1}};
  for (std::uint32_t rank = 0; rank < 4; ++rank) model.paths[rank * 4 + rank].resources = {0};
  const auto shared = simulate(plan, {.count = 100000}, model);
  ASSERT_TRUE(shared);
  EXPECT_GT(shared->total_us, alone + 200);
  EXPECT_EQ(shared->binding, "root port");
}

TEST(Clock, AMeasuredPlanTakesWhatItTook) {
  PlanRatios ratios;
  ratios.add(Collective::all_gather, "ring", 4 << 10, 2);
  ratios.add(Collective::all_gather, "ring", 64 << 10, 4);
  EXPECT_EQ(ratios.of(Collective::all_gather, "ring", 1), 2);
  EXPECT_EQ(ratios.of(Collective::all_gather, "ring", 4 << 10), 2);
  EXPECT_NEAR(ratios.of(Collective::all_gather, "ring", 16 << 10), 3, 1e-9);
  EXPECT_EQ(ratios.of(Collective::all_gather, "ring", 64 << 10), 4);
  EXPECT_EQ(ratios.of(Collective::all_gather, "ring", 1 << 30), 4);
  EXPECT_EQ(ratios.of(Collective::all_gather, "one_hop", 4 << 10), 1);
  EXPECT_EQ(ratios.of(Collective::all_reduce, "ring", 4 << 10), 1);

  ClockModel model = host_model(4, 4);
  const Plan ring = plan_of("ring", Collective::all_gather, 4), one_hop = plan_of("one_hop", Collective::all_gather, 4);
  const ClockSize size{.count = 4 << 10, .element_bytes = 4};  // 64 KB on four ranks
  const double ring_us = time_us(ring, size, model), one_hop_us = time_us(one_hop, size, model);
  model.ratios = ratios;
  EXPECT_DOUBLE_EQ(time_us(ring, size, model), 4 * ring_us);
  EXPECT_EQ(time_us(one_hop, size, model), one_hop_us);
}

/// After many simulated seconds, rounding errors of the time are larger than the shortest step.
TEST(Clock, TimeGoesOnAfterManySeconds) {
  const Plan plan = plan_of("one_hop", Collective::all_gather, 4);
  const ClockSize size{.count = 1000};
  for (const double gbps : {1e-3, 1e-5, 1e-7, 1e-9})
    for (const double latency_us : {10.0, 1e7, 1e10}) {
      ClockModel model = plain_model(4);
      model.resources = {{"link", gbps}};
      for (ClockPath& path : model.paths) path = {latency_us, 0, {0}};
      const auto result = simulate(plan, size, model);
      ASSERT_TRUE(result) << gbps << " GB/s, " << latency_us << " us: " << result.error().message;
      // Each rank's bytes cross the link when they are written, and once for each of the three others that read them.
      const double link_us = 4 * 4 * 1000 / (gbps * 1e3);
      EXPECT_NEAR(result->total_us, link_us + latency_us, 0.01 * (link_us + latency_us)) << gbps << ", " << latency_us;
    }
}

/// The same, where ranks share links and end at the same time except for rounding errors.
TEST(Clock, SlowAlgorithmsOfManySlicesEnd) {
  for (const double gbps : {1e-1, 1e-3, 1e-5, 1e-7})
    for (const double latency_us : {10.0, 1.1e7})
      for (const char* algorithm : {"ring", "two_hop", "one_hop"}) {
        HostRates rates;
        rates.memory = {};
        ClockModel model = host_model(7, 0, rates);
        model.resources = {{"link", gbps}, {"other link", 3 * gbps}};
        for (std::uint16_t i = 0; i < 49; ++i)
          model.paths[i] = {latency_us, gbps / 1.3, {static_cast<std::uint16_t>(i % 7 < 4 ? 0 : 1)}};
        const double least_us = (1 << 20) / (3 * gbps * 1e3);
        const double us = time_us(plan_of(algorithm, Collective::all_reduce, 7), {.count = 1 << 20}, model);
        EXPECT_GT(us, least_us) << algorithm << gbps;
        EXPECT_LT(us, 100 * (least_us + latency_us)) << algorithm << gbps;
      }
}

TEST(Clock, DoesTheSameEveryTime) {
  const Plan plan = plan_of("two_hop", Collective::all_reduce, 6);
  const ClockSize size{.count = 1 << 20, .element_bytes = 2, .slice_bytes = 16 << 10};
  EXPECT_EQ(time_us(plan, size, host_model(6, 3)), time_us(plan, size, host_model(6, 3)));
}

TEST(Clock, StepsOfTheTimelineFollowOneAnother) {
  const Plan plan = plan_of("peer_two_hop", Collective::all_reduce, 4, true);
  const auto result = simulate(plan, {.count = 1 << 20, .element_bytes = 4}, host_model(4, 4));
  ASSERT_TRUE(result);
  std::size_t steps = 0;
  for (const RankPlan& mine : plan)
    for (const Lane& lane : mine.lanes) steps += lane.steps.size();
  EXPECT_EQ(result->timeline.size(), steps * result->simulated_slices);
  std::vector<double> busy_until(4, 0);  // one thread per rank: steps do not overlap
  for (const TimedStep& step : result->timeline) {
    EXPECT_GE(step.begin_us, busy_until[step.rank] - 1e-6);
    busy_until[step.rank] = step.end_us;
  }
}

TEST(Clock, RunsTheWholeCatalogue) {
  int simulated = 0;
  for (const Algorithm& algorithm : catalogue())
    for (int c = 0; c < collective_count; ++c)
      for (const PlanRequest& request : test::requests(static_cast<Collective>(c), 8)) {
        if (!algorithm.supports(request)) continue;
        const Plan plan = build_all(algorithm, request);
        const auto result =
            simulate(plan, {.count = 100000, .element_bytes = 4, .slice_bytes = 16 << 10}, host_model(8, 4));
        ASSERT_TRUE(result) << result.error().message;
        EXPECT_GT(result->total_us, 0);
        ++simulated;
      }
  EXPECT_GT(simulated, 100);
}

TEST(Clock, SaysWhichStepBlocksForEver) {
  Plan plan = plan_of("direct", Collective::all_to_all, 2);
  for (RankPlan& mine : plan) std::reverse(mine.lanes[0].steps.begin(), mine.lanes[0].steps.end());
  const auto result = simulate(plan, {.count = 100}, plain_model(2));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("blocks for ever"), std::string::npos);
  EXPECT_FALSE(simulate(plan, {.count = 100}, plain_model(3)));
}

}  // namespace
}  // namespace strait
