// The times of plans, computed from blocks of measurement windows that the plans share.
#include <gtest/gtest.h>

#include <cmath>

#include "doctor/time_plans.hpp"

namespace strait::doctor {
namespace {

PlanTime plan(const std::string& algorithm, std::vector<double> first, std::vector<double> second,
              std::size_t bytes = 1024) {
  return {.bytes = bytes, .algorithm = algorithm, .blocks_us = {std::move(first), std::move(second)}};
}

/// If each window is slower than the one before, the ratio of the plans' times is still found.
TEST(ComparePlans, WindowByWindow) {
  std::vector<double> slow, fast;
  for (int window = 0; window < 12; ++window) {
    fast.push_back(10 + window);
    slow.push_back(1.2 * (10 + window));
  }
  std::vector<PlanTime> plans{plan("slow", slow, slow), plan("fast", fast, fast)};
  compare_plans(plans);
  EXPECT_NEAR(plans[0].measured_us() / plans[1].measured_us(), 1.2, 1e-9);
  EXPECT_NEAR(plans[0].measured_us(0) / plans[1].measured_us(0), 1.2, 1e-9);
  EXPECT_GE(plans[1].measured_us(), 10);
  EXPECT_LE(plans[1].measured_us(), 14) << "a quick window's";
  EXPECT_NEAR(plans[0].spread(), 0, 1e-9);
}

/// A third of the windows were good for this plan alone: by its own fastest quarter it would seem to be the fastest.
TEST(ComparePlans, LuckyWindowsOfOnePlanDecideNothing) {
  const std::vector<double> steady(12, 10);
  std::vector<double> lucky(12, 11);
  for (const int window : {1, 4, 7, 10}) lucky[window] = 8;
  std::vector<PlanTime> plans{plan("steady", steady, steady), plan("lucky", lucky, lucky)};
  compare_plans(plans);
  EXPECT_NEAR(plans[1].measured_us() / plans[0].measured_us(), 1.1, 1e-6);
}

/// A plan that was dropped early is judged by its own windows, and does not influence how others are compared.
TEST(ComparePlans, ThoseFarBehindTakeTheirOwnTime) {
  const std::vector<double> steady(12, 10), worse(12, 15), far(3, 100);
  std::vector<PlanTime> plans{plan("steady", steady, steady), plan("far", far, {}), plan("worse", worse, worse)};
  compare_plans(plans);
  EXPECT_NEAR(plans[0].measured_us(), 10, 1e-9);
  EXPECT_NEAR(plans[2].measured_us(), 15, 1e-9);
  EXPECT_NEAR(plans[1].measured_us(), 100, 1e-9);
  EXPECT_TRUE(std::isinf(plans[1].measured_us(1))) << "not measured";
}

TEST(ComparePlans, EachCallForItself) {
  std::vector<PlanTime> plans{plan("one", {10, 10}, {20, 20}), plan("one", {40, 40, 40}, {40, 40, 40}, 8192)};
  compare_plans(plans);
  EXPECT_NEAR(plans[0].measured_us(0), 10, 1e-9);
  EXPECT_NEAR(plans[0].measured_us(1), 20, 1e-9);
  EXPECT_NEAR(plans[0].spread(), 1, 1e-9);
  EXPECT_NEAR(plans[1].measured_us(), 40, 1e-9);
}

}  // namespace
}  // namespace strait::doctor
