#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/proof.hpp"
#include "plan/request.hpp"
#include "requests.hpp"

/// Plans with one defect each, and the proof's message about it.
namespace strait {
namespace {

using testing::AllOf;
using testing::HasSubstr;

PlanRequest request_of(Collective collective, std::uint32_t ranks) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = ranks;
  request.peer_memory = true;
  return request;
}

Plan plan_of(std::string_view algorithm, const PlanRequest& request) {
  return build_all(*find_algorithm(algorithm), request);
}

Plan plan_of(std::string_view algorithm, Collective collective, std::uint32_t ranks) {
  return plan_of(algorithm, request_of(collective, ranks));
}

std::string verdict(const Plan& plan, const ProofOptions& options) {
  const Status proof = prove(plan, options);
  return proof ? "proven" : proof.error().message;
}

const ProofOptions in_rank_order{.depth = 2, .slices = 3, .in_place = {}, .numerics = Numerics::rank_order};

ProofOptions in_place(std::uint32_t ranks) {
  ProofOptions options = in_rank_order;
  options.in_place.assign(ranks, true);
  return options;
}

Step& reducing_step(RankPlan& plan) {
  auto& steps = plan.lanes[0].steps;
  return *std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.reduces; });
}

const Operand& operand_of(const std::vector<Operand>& operands, Operand::Kind kind) {
  return *std::find_if(operands.begin(), operands.end(), [&](const Operand& operand) { return operand.kind == kind; });
}

void forget_signals(Plan& plan, std::uint16_t tag) {
  for (RankPlan& mine : plan) {
    const auto is_it = [&](std::uint16_t index) { return mine.signals[index].tag == tag; };
    for (Lane& lane : mine.lanes)
      for (Step& step : lane.steps) {
        std::erase_if(step.waits, is_it);
        std::erase_if(step.signals, is_it);
      }
  }
}

TEST(ProofRejects, SumsInAnotherOrderThanPromised) {
  Plan plan = plan_of("one_hop", Collective::all_reduce, 3);
  Step& step = reducing_step(plan[1]);
  std::swap(step.sources[0], step.sources[1]);
  EXPECT_THAT(verdict(plan, in_rank_order), AllOf(HasSubstr("rank 1, output[0] slice 0"),
                                                  HasSubstr("sum in rank order"), HasSubstr("(r1 + r0 + r2)")));
}

TEST(ProofRejects, AnotherOrderOnOneRankEvenIfRoundingIsAllowed) {
  Plan plan = plan_of("one_hop", Collective::all_reduce, 3);
  Step& step = reducing_step(plan[2]);
  std::swap(step.sources[0], step.sources[1]);
  ProofOptions options = in_rank_order;
  options.numerics = Numerics::rounded;
  EXPECT_THAT(verdict(plan, options), HasSubstr("rank 2, output[0] slice 0 is added in another order than on rank 0"));
}

TEST(ProofRejects, PartialSumsWhereOneRoundingIsPromised) {
  EXPECT_EQ(verdict(plan_of("ring", Collective::all_reduce, 4), {.depth = 2, .slices = 2}), "proven");
  EXPECT_THAT(verdict(plan_of("ring", Collective::all_reduce, 4), in_rank_order), HasSubstr("rounded once"));
}

TEST(ProofRejects, OverwritingInPlaceWhatPeersStillRead) {
  // Built for calls out of place, so no rank waits before it writes its output.
  const Plan plan = plan_of("peer_one_hop", Collective::all_reduce, 3);
  EXPECT_EQ(verdict(plan, in_rank_order), "proven");
  EXPECT_THAT(verdict(plan, in_place(3)),
              testing::AnyOf(HasSubstr("an acknowledgement is missing"), HasSubstr("nothing orders the two")));
}

TEST(ProofRejects, FetchingBeforeTheOwnerHasWritten) {
  Plan plan = plan_of("peer_two_hop", Collective::all_reduce, 3);
  EXPECT_EQ(verdict(plan, in_place(3)), "proven");
  forget_signals(plan, 2);
  EXPECT_THAT(verdict(plan, in_rank_order),
              testing::AnyOf(HasSubstr("nothing orders the two"), HasSubstr("reads a chunk that nobody has written"),
                             HasSubstr("may not have entered the operation yet")));
}

TEST(ProofRejects, LeavingWhilePeersStillRead) {
  Plan plan = plan_of("peer_one_hop", Collective::all_gather, 3);
  EXPECT_EQ(verdict(plan, in_rank_order), "proven");
  forget_signals(plan, 1);
  EXPECT_THAT(verdict(plan, in_rank_order), HasSubstr("after that rank has left the operation"));
}

TEST(ProofRejects, PeerPlansWithoutAnyOneOfTheirSignals) {
  int rejected = 0;
  for (const char* algorithm : {"peer_one_hop", "peer_two_hop", "peer_push"})
    for (int c = 0; c < collective_count; ++c) {
      PlanRequest request = request_of(static_cast<Collective>(c), 3);
      request.in_place = true;
      if (!find_algorithm(algorithm)->supports(request)) continue;
      const Plan good = plan_of(algorithm, request);
      ASSERT_EQ(verdict(good, in_place(3)), "proven") << algorithm << " " << name(request.collective);
      for (const SignalEnd& signal : good[0].signals) {
        Plan plan = good;
        forget_signals(plan, signal.tag);
        EXPECT_NE(verdict(plan, in_place(3)), "proven")
            << algorithm << " " << name(request.collective) << " " << signal.tag;
        ++rejected;
      }
    }
  EXPECT_GT(rejected, 40);
}

TEST(ProofRejects, ReadingAPeerThatHasNotEntered) {
  Plan plan = plan_of("peer_one_hop", Collective::reduce_scatter, 3);
  forget_signals(plan, 0);
  EXPECT_THAT(verdict(plan, in_rank_order), HasSubstr("may not have entered the operation yet"));
}

TEST(ProofRejects, AFifoTooShallow) {
  // Both ranks send twice before they receive.
  Plan plan = plan_of("two_hop", Collective::all_reduce, 2);
  for (RankPlan& mine : plan) {
    Lane& lane = mine.lanes[0];
    lane.steps = {lane.steps[0], lane.steps[0], lane.steps[1], lane.steps[1], lane.steps[2], lane.steps[2]};
  }
  EXPECT_THAT(verdict(plan, {.depth = 1, .slices = 2}),
              AllOf(HasSubstr("deadlock with FIFOs of 1 slots; 2 lanes"),
                    HasSubstr("waits for a free slot: send(0->1)"), HasSubstr("rank 1, lane 0, step 1")));
  EXPECT_EQ(verdict(plan, {.depth = 2, .slices = 2}), "proven");
}

TEST(ProofRejects, StepsThatNeedTwoSlotsOfALink) {
  Plan plan = plan_of("one_hop", Collective::broadcast, 2);
  auto& destinations = plan[0].lanes[0].steps[0].destinations;
  destinations.push_back(operand_of(destinations, Operand::Kind::send));
  plan[1].lanes[0].steps.push_back(plan[1].lanes[0].steps[0]);
  EXPECT_THAT(verdict(plan, {.depth = 1, .slices = 2}), HasSubstr("one step fills two slots of one link"));
  EXPECT_EQ(verdict(plan, {.depth = 2, .slices = 2}), "proven");
  plan = plan_of("one_hop", Collective::all_reduce, 2);
  auto& steps = plan[0].lanes[0].steps;
  steps.insert(steps.begin(), steps[0]);
  auto& sources = reducing_step(plan[1]).sources;
  sources.push_back(operand_of(sources, Operand::Kind::receive));
  EXPECT_THAT(verdict(plan, {.depth = 1, .slices = 2}), HasSubstr("one step takes two slots of one link"));
}

TEST(ProofRejects, SlotsThatNobodyReceives) {
  Plan plan = plan_of("point_to_point", Collective::all_to_all_v, 2);
  auto& sends = plan[0].lanes[1].steps;
  sends.push_back(sends[0]);
  EXPECT_THAT(verdict(plan, {.depth = 4, .slices = 1}), HasSubstr("1 slots were sent but never received"));
}

TEST(ProofRejects, ReceivingBeforeAnybodySends) {
  Plan plan = plan_of("direct", Collective::all_to_all, 3);
  for (RankPlan& mine : plan) std::reverse(mine.lanes[0].steps.begin(), mine.lanes[0].steps.end());
  EXPECT_THAT(verdict(plan, in_rank_order), AllOf(HasSubstr("deadlock"), HasSubstr("3 lanes are blocked for ever"),
                                                  HasSubstr("waits for a filled slot")));
}

TEST(ProofRejects, AContributionTwice) {
  Plan plan = plan_of("one_hop", Collective::all_reduce, 3);
  Step& step = reducing_step(plan[0]);
  step.sources.push_back(step.sources[0]);
  EXPECT_THAT(verdict(plan, in_rank_order),
              AllOf(HasSubstr("adds a contribution twice: input[0]"), HasSubstr("rank 0")));
}

TEST(ProofRejects, SumsOfDifferentParts) {
  Plan plan = plan_of("peer_one_hop", Collective::reduce_scatter, 3);
  ASSERT_EQ(verdict(plan, {}), "proven");
  reducing_step(plan[1]).sources[0].chunk = 0;
  EXPECT_THAT(verdict(plan, {}), HasSubstr("adds different parts of the data"));
}

TEST(ProofRejects, AMissingContribution) {
  Plan plan = plan_of("peer_one_hop", Collective::reduce, 3);
  reducing_step(plan[0]).sources.pop_back();
  EXPECT_THAT(verdict(plan, in_rank_order), HasSubstr("marked final but contributions are missing"));
  reducing_step(plan[0]).final = false;
  EXPECT_THAT(verdict(plan, in_rank_order), HasSubstr("misses contributions: it holds (r0 + r1)"));
}

TEST(ProofRejects, AnOutputNeverWritten) {
  Plan plan = plan_of("direct", Collective::all_to_all, 2);
  for (Lane& lane : plan[1].lanes)
    std::erase_if(lane.steps, [](const Step& step) {
      return step.sources[0].kind == Operand::Kind::local && step.destinations[0].kind == Operand::Kind::local;
    });
  EXPECT_THAT(verdict(plan, in_rank_order), HasSubstr("rank 1, output[1] slice 0 was never written"));
}

TEST(ProofRejects, BlocksOfTheWrongRank) {
  Plan plan = plan_of("direct", Collective::all_to_all, 3);
  auto& steps = plan[0].lanes[0].steps;
  std::swap(steps[0].sources[0].chunk, steps[1].sources[0].chunk);
  EXPECT_THAT(verdict(plan, in_rank_order), HasSubstr("should hold rank 0's input[1] but holds rank 0's input[2]"));
}

TEST(ProofRejects, ReadingBeforeWriting) {
  PlanRequest request = request_of(Collective::all_to_all, 4);
  request.in_place = true;
  Plan plan = plan_of("bruck", request);
  std::rotate(plan[2].lanes[0].steps.begin(), plan[2].lanes[0].steps.begin() + 3, plan[2].lanes[0].steps.end());
  EXPECT_THAT(verdict(plan, in_place(4)), HasSubstr("reads a chunk that nobody has written"));
}

TEST(ProofRejects, WrongFinalMarks) {
  Plan plan = plan_of("ring", Collective::all_reduce, 4);
  reducing_step(plan[2]).final = true;
  EXPECT_THAT(verdict(plan, {}), HasSubstr("marked final but contributions are missing"));
  plan = plan_of("two_hop", Collective::all_reduce, 4);
  reducing_step(plan[2]).final = false;
  EXPECT_THAT(verdict(plan, {}), HasSubstr("holds all contributions but is not marked final"));
}

TEST(ProofRejects, LinkEndsThatDoNotMatch) {
  const Plan good = plan_of("one_hop", Collective::all_gather, 3);
  Plan plan = good;
  plan[0].links[0].readers = {1};
  EXPECT_THAT(verdict(plan, {}), HasSubstr("link 0->1 #0 is written but rank 1 does not read it"));
  plan = plan_of("direct", Collective::all_to_all, 3);
  const auto& ends = plan[1].links;
  plan[2].links.push_back(*std::find_if(ends.begin(), ends.end(), [](const LinkEnd& end) { return end.writer == 0; }));
  EXPECT_THAT(verdict(plan, {}), HasSubstr("link 0->1 #0 is read by a rank that is not among its readers"));
  plan = good;
  plan[1].lanes[0].steps.pop_back();
  EXPECT_THAT(verdict(plan, {}), HasSubstr("is written 1 times a slice, but rank 1 reads it 0 times"));
}

TEST(ProofRejects, ChunksOfDifferentLength) {
  Plan plan = plan_of("two_hop", Collective::all_reduce, 3);
  plan[0].lanes[0].steps[0].destinations[0].chunk = 2;
  EXPECT_THAT(verdict(plan, {}), HasSubstr("the operands have different lengths"));
  plan[0].lanes[0].steps[0].sources[0].chunk = 2;
  EXPECT_THAT(verdict(plan, {}), HasSubstr("holds a chunk of another length"));
}

TEST(ProofRejects, SignalEndsThatDoNotMatch) {
  Plan plan = plan_of("barrier", Collective::barrier, 4);
  plan[1].lanes[0].steps.pop_back();
  EXPECT_THAT(verdict(plan, {}), HasSubstr("times a slice, but waited for 0 times"));
}

TEST(ProofRejects, ABarrierThatHearsOfNeighboursOnly) {
  Plan plan = plan_of("barrier", Collective::barrier, 4);
  forget_signals(plan, 1);
  EXPECT_THAT(verdict(plan, {}), HasSubstr("may leave before rank"));
}

TEST(ProofRejects, RacesBetweenLanesOfOneRank) {
  // The second lane copies the chunk that the first lane writes.
  Plan plan = plan_of("one_hop", Collective::all_reduce, 1);
  Lane other;
  other.steps.emplace_back();
  other.steps[0].sources = {{.buffer = Buffer::output}};
  other.steps[0].destinations = {{.buffer = Buffer::scratch}};
  plan[0].scratch_chunks = 1;
  plan[0].lanes.push_back(other);
  EXPECT_THAT(verdict(plan, {}),
              testing::AnyOf(HasSubstr("nothing orders the two"), HasSubstr("reads a chunk that nobody has written")));
}

/// Here the reading lane comes first. In place, the output is memory that the other lane may still read.
TEST(ProofRejects, OverwritingWhatAnotherLaneMayStillRead) {
  Plan plan = plan_of("one_hop", Collective::all_reduce, 1);
  Lane other;
  other.steps.emplace_back();
  other.steps[0].sources = {{.buffer = Buffer::input}};
  other.steps[0].destinations = {{.buffer = Buffer::scratch}};
  plan[0].scratch_chunks = 1;
  plan[0].lanes.push_back(other);
  EXPECT_EQ(verdict(plan, in_rank_order), "proven");
  EXPECT_THAT(verdict(plan, in_place(1)), HasSubstr("an acknowledgement is missing"));
}

TEST(ProofRejects, TwoLanesOnOneLink) {
  Plan plan = plan_of("one_hop", Collective::all_gather, 2);
  plan[0].lanes.push_back(plan[0].lanes[0]);
  EXPECT_THAT(verdict(plan, {}), HasSubstr("lane 0 uses the same end of a link"));
}

TEST(ProofRejects, PeersThatThereAreNot) {
  for (const std::uint32_t peer : {0, 3}) {
    Plan plan = plan_of("peer_one_hop", Collective::all_gather, 3);
    for (Step& step : plan[0].lanes[0].steps)
      for (Operand& source : step.sources)
        if (source.kind == Operand::Kind::peer) source.peer = peer;
    EXPECT_THAT(verdict(plan, {}), HasSubstr("there is no such peer")) << peer;
  }
}

TEST(ProofRejects, WritingTheInput) {
  Plan plan = plan_of("one_hop", Collective::all_reduce, 2);
  reducing_step(plan[0]).destinations[0].buffer = Buffer::input;
  EXPECT_THAT(verdict(plan, {}), HasSubstr("an input is written"));
}

}  // namespace
}  // namespace strait
