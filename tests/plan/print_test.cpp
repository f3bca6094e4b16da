#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/print.hpp"
#include "plan/request.hpp"

namespace strait {
namespace {

using testing::HasSubstr;
using testing::Not;

Plan plan_of(std::string_view algorithm, Collective collective, std::uint32_t ranks) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = ranks;
  request.peer_memory = true;
  return build_all(*find_algorithm(algorithm), request);
}

std::size_t occurrences(std::string_view text, std::string_view what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(PrintText, SaysWhatEachStepDoes) {
  EXPECT_EQ(to_text(plan_of("two_hop", Collective::all_reduce, 2)),
            "rank 0 of 2: two_hop all-reduce, chunks a block: 2, scratch chunks: 0\n"
            "  lane 0 step 0: send(0->1)[1] <- input[1]\n"
            "  lane 0 step 1: output[0], send(0->1 #1)[0] <- input[0] + receive(1->0)[0], final\n"
            "  lane 0 step 2: output[1] <- receive(1->0 #1)[1]\n"
            "rank 1 of 2: two_hop all-reduce, chunks a block: 2, scratch chunks: 0\n"
            "  lane 0 step 0: send(1->0)[0] <- input[0]\n"
            "  lane 0 step 1: output[1], send(1->0 #1)[1] <- receive(0->1)[1] + input[1], final\n"
            "  lane 0 step 2: output[0] <- receive(0->1 #1)[0]\n");
}

TEST(PrintText, ShowsPeersAndSignals) {
  const std::string text = to_text(plan_of("peer_one_hop", Collective::reduce, 2));
  EXPECT_THAT(text, HasSubstr("wait(1->0) output[0] <- input[0] + peer(1).input[0], final signal(0->1 #1)"));
  EXPECT_THAT(text, HasSubstr("lane 0 step 0: signal(1->0)"));
  EXPECT_THAT(to_text(plan_of("one_hop", Collective::all_reduce, 1)),
              HasSubstr("output[0] <- reduce(input[0]), final"));
}

TEST(PrintDot, HasAnEdgeForEachTransfer) {
  const std::string dot = to_dot(plan_of("one_hop", Collective::broadcast, 4));
  EXPECT_THAT(dot, HasSubstr("s0 [label=\"output[0], send(0->1,2,3)[0] <- input[0]\"]"));
  for (const char* edge : {"s0 -> s1;", "s0 -> s2;", "s0 -> s3;"}) EXPECT_THAT(dot, HasSubstr(edge));
  EXPECT_EQ(occurrences(dot, " -> s"), 3U);
  EXPECT_EQ(occurrences(to_dot(plan_of("barrier", Collective::barrier, 4)), "style=dotted"), 8U);
}

TEST(PrintSvg, HasABoxForEachStepAndAnArrowForEachTransfer) {
  const std::string svg = to_svg(plan_of("ring", Collective::all_gather, 4));
  EXPECT_EQ(occurrences(svg, "<title>"), 16U);
  EXPECT_EQ(occurrences(svg, "<line "), 12U);
  EXPECT_THAT(svg, HasSubstr("all-gather, ring, 4 ranks, one slice"));
  EXPECT_THAT(svg, HasSubstr("output[0], send(0-&gt;1)[0] &lt;- input[0]"));
  EXPECT_THAT(svg, HasSubstr(">rank 3</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("<image")));
}

TEST(PrintSvg, PutsEveryStepBelowWhatItWaitsFor) {
  // In a ring of 4, each rank's last block takes three hops, so there are four rows.
  const std::string svg = to_svg(plan_of("ring", Collective::all_gather, 4));
  EXPECT_THAT(svg, HasSubstr("height=\"272\""));  // 64 above, 4 rows of 48, 16 below
}

TEST(PrintSvg, OfManyLanesDrawsTheFirstOnesAndSaysSo) {
  Plan plan = plan_of("one_hop", Collective::broadcast, 8);
  for (RankPlan& mine : plan) mine.lanes.resize(7, mine.lanes.front());
  const std::string svg = to_svg(plan);
  EXPECT_THAT(svg, HasSubstr("8 ranks, one slice; of 7 lanes that ranks have, the first 3 of each</text>"));
  EXPECT_THAT(svg, HasSubstr("width=\"5052\""));  // 8 ranks of 3 lanes, each 200 wide, and 9 gaps of 28
  EXPECT_THAT(to_svg(plan_of("one_hop", Collective::broadcast, 8)), Not(HasSubstr("lanes that ranks have")));
}

TEST(PrintTrace, HasAnEventForEachStepAndSlice) {
  const Plan plan = plan_of("two_hop", Collective::all_reduce, 2);
  const ClockModel model = host_model(2, 2);
  const auto result = simulate(plan, {.count = 64 << 10, .element_bytes = 4, .slice_bytes = 64 << 10}, model);
  ASSERT_TRUE(result);
  const auto trace = nlohmann::json::parse(to_chrome_trace(plan, *result));
  int names = 0;
  int steps = 0;
  double last_us = 0;
  for (const auto& event : trace["traceEvents"]) {
    names += event["ph"] == "M";
    if (event["ph"] != "X") continue;
    ++steps;
    EXPECT_GT(event["dur"].get<double>(), 0);
    last_us = std::max(last_us, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(names, 2);
  EXPECT_EQ(steps, 2 * 3 * 2);
  EXPECT_DOUBLE_EQ(last_us + model.call_us, result->total_us);  // the steps, and the call around them
}

}  // namespace
}  // namespace strait
