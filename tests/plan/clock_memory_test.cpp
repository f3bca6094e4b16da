#include <gtest/gtest.h>

#include "plan/clock.hpp"
#include "plan/request.hpp"

namespace strait {
namespace {

Plan plan_of(std::string_view algorithm, Collective collective, bool peer_memory = false) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = 2;
  request.peer_memory = peer_memory;
  return build_all(*find_algorithm(algorithm), request);
}

/// 1 GB/s is 1000 bytes per microsecond; steps, calls and signals take no time.
HostRates bare_rates() {
  HostRates rates;
  rates.call_us = rates.step_us = rates.latency_us = 0;
  rates.copy_gbps = 1;
  rates.reduce_gbps = 1;
  rates.dram_copy_gbps = 0;
  rates.memory = {};
  return rates;
}

double time_us(const Plan& plan, std::size_t count, const HostRates& rates, std::uint32_t cores = 2) {
  const auto result =
      simulate(plan, {.count = count, .element_bytes = 1, .slice_bytes = 1 << 20}, host_model(2, cores, rates));
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->total_us : 0;
}

TEST(ClockMemory, TheReaderPaysForLinesOfAnotherCore) {
  const Plan plan = plan_of("one_hop", Collective::reduce);
  HostRates rates = bare_rates();
  EXPECT_NEAR(time_us(plan, 1000, rates), 1 + 2, 1e-3);  // a copy into the slot, a sum of two
  rates.memory.fetch_gbps = 0.5;                         // 2 us instead of 1
  EXPECT_NEAR(time_us(plan, 1000, rates), 1 + 2 + 1, 1e-3);
  rates.memory.replace_gbps = 0.25;  // the other core read the slot last time
  EXPECT_NEAR(time_us(plan, 1000, rates), 1 + 3 + 2 + 1, 1e-3);
}

TEST(ClockMemory, ASlotWrittenBesideTheOutputHasARateOfItsOwn) {
  // Each rank copies its input to its output and to the other's slot, then the other's block to its output.
  const Plan plan = plan_of("staged", Collective::all_gather);
  HostRates rates = bare_rates();
  rates.memory.two_copies_gbps = 0.5;  // 2 us instead of 1
  EXPECT_NEAR(time_us(plan, 1000, rates), 2 + 1, 1e-3);
  rates.memory.replace_gbps = 0.8;  // a quarter of a microsecond more
  EXPECT_NEAR(time_us(plan, 1000, rates), 2 + 0.25 + 1, 1e-3);
  rates.memory.replace_beside_gbps = 0.2;  // 5 us in all
  EXPECT_NEAR(time_us(plan, 1000, rates), 5 + 1, 1e-3);
  const Plan lone = plan_of("one_hop", Collective::reduce);  // its copy has one destination
  EXPECT_NEAR(time_us(lone, 1000, rates), 1 + 0.25 + 2, 1e-3);
}

TEST(ClockMemory, RanksOnOneCoreShareItsCache) {
  const Plan plan = plan_of("one_hop", Collective::reduce);
  HostRates rates = bare_rates();
  rates.switch_us = 0;
  const double before = time_us(plan, 1000, rates, 1);
  rates.memory.fetch_gbps = rates.memory.replace_gbps = 0.5;
  EXPECT_NEAR(time_us(plan, 1000, rates, 1), before, 1e-9);
}

TEST(ClockMemory, WhatTheOwnCacheCannotHoldComesFromTheSharedOne) {
  // Each rank touches its input and its output, 1000 bytes each, and the peer's input.
  const Plan plan = plan_of("peer_one_hop", Collective::all_reduce, true);
  HostRates rates = bare_rates();
  rates.memory.shared_read_gbps = 0.5;   // 1 us more
  rates.memory.shared_write_gbps = 0.5;  // 1 us more
  rates.memory.core_cache_bytes = 3000;
  EXPECT_NEAR(time_us(plan, 1000, rates), 2, 1e-3);
  rates.memory.core_cache_bytes = 1500;  // half of it: 0.5 us more for each of two sources and one destination
  EXPECT_NEAR(time_us(plan, 1000, rates), 2 + 1.5, 1e-3);
}

TEST(ClockMemory, OutputsBeyondTheSharedCacheStreamToDram) {
  const Plan plan = plan_of("peer_one_hop", Collective::all_reduce, true);
  HostRates rates = bare_rates();
  rates.cache_bytes = 1000;  // of four buffers of 1000 bytes, three quarters are in DRAM
  rates.memory.stream_gbps = 0.25;
  EXPECT_NEAR(time_us(plan, 1000, rates), 2 + 3, 1e-3);
}

TEST(ClockMemory, ACallCostsItsShare) {
  HostRates rates = bare_rates();
  const Plan plan = plan_of("peer_one_hop", Collective::all_reduce, true);
  const double before = time_us(plan, 1000, rates);
  rates.call_us = 5;
  EXPECT_NEAR(time_us(plan, 1000, rates), before + 5, 1e-9);
}

}  // namespace
}  // namespace strait
