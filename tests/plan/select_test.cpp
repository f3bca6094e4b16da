#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "requests.hpp"
#include "select/select.hpp"

namespace strait {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

PlanRequest request_of(Collective collective, std::uint32_t ranks) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = ranks;
  return request;
}

TEST(Select, EveryCollectiveAndRankCountHasAnAlgorithm) {
  for (int c = 0; c < collective_count; ++c)
    for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
      const auto choice = choose(request_of(static_cast<Collective>(c), ranks), DataType::float32, ReduceOp::sum, 1000,
                                 host_model(ranks, 4));
      ASSERT_TRUE(choice) << choice.error().message;
      EXPECT_NE(find_algorithm(choice->algorithm), nullptr);
      EXPECT_GE(choice->slice_bytes, 16U << 10);
      EXPECT_THAT(choice->why, HasSubstr(choice->algorithm));
    }
}

TEST(Select, FloatingSumsStayInTheClassThatRoundsOnce) {
  PlanRequest request = request_of(Collective::all_reduce, 8);
  request.shape = test::shape_of(8, {4});
  for (const std::size_t count : {1U, 10000U, 10000000U}) {
    const auto choice = choose(request, DataType::float32, ReduceOp::sum, count, host_model(8, 8));
    ASSERT_TRUE(choice);
    for (const Alternative& alternative : choice->alternatives)
      EXPECT_EQ(find_algorithm(alternative.algorithm)->sums, Numerics::rank_order);
  }
  const auto integers = choose(request, DataType::int32, ReduceOp::sum, 10000, host_model(8, 8));
  const auto floats = choose(request, DataType::float32, ReduceOp::sum, 10000, host_model(8, 8));
  ASSERT_TRUE(integers && floats);
  EXPECT_GT(integers->alternatives.size(), floats->alternatives.size());
}

TEST(Select, TheClassDoesNotDependOnWhatTheMachineOffers) {
  for (const bool multicast : {true, false})
    for (const bool peers : {true, false}) {
      PlanRequest request = request_of(Collective::reduce_scatter, 6);
      request.multicast = multicast;
      request.peer_memory = peers;
      EXPECT_EQ(numerics_class(request, DataType::bfloat16, ReduceOp::sum), Numerics::rank_order);
      EXPECT_EQ(numerics_class(request, DataType::bfloat16, ReduceOp::max), Numerics::rounded);
    }
}

TEST(Select, SmallTakesOneHopLargeTakesTwo) {
  const PlanRequest request = request_of(Collective::all_reduce, 8);
  const auto small = choose(request, DataType::float32, ReduceOp::sum, 16, host_model(8, 8));
  const auto large = choose(request, DataType::float32, ReduceOp::sum, 4 << 20, host_model(8, 8));
  ASSERT_TRUE(small && large);
  EXPECT_EQ(small->algorithm, "one_hop");
  EXPECT_THAT(large->algorithm, testing::AnyOf("two_hop", "staged"));
  EXPECT_GT(large->predicted_us, small->predicted_us);
}

TEST(Select, TheSimplestOfTheFastestIsChosenAndTheOthersFollowByTime) {
  int simpler_than_fastest = 0;
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (const std::uint32_t ranks : {2, 4, 6})
      for (const std::size_t count : {std::size_t{1} << 8, std::size_t{1} << 14, std::size_t{1} << 20}) {
        const PlanRequest request = request_of(collective, ranks);
        const auto choice = choose(request, DataType::int32, ReduceOp::sum, count, host_model(ranks, ranks));
        ASSERT_TRUE(choice) << choice.error().message;
        const auto& all = choice->alternatives;
        for (std::size_t i = 2; i < all.size(); ++i) EXPECT_LE(all[i - 1].predicted_us, all[i].predicted_us);
        EXPECT_EQ(choice->algorithm, all.front().algorithm);
        EXPECT_EQ(choice->predicted_us, all.front().predicted_us);
        const double fastest_us = std::min(all[0].predicted_us, all[1].predicted_us);
        EXPECT_LE(choice->predicted_us, 1.03 * fastest_us);
        EXPECT_EQ(choice->why.find(": both within 3%, which") != std::string::npos,
                  choice->predicted_us > all[1].predicted_us)
            << choice->why;
        simpler_than_fastest += choice->predicted_us > fastest_us ? 1 : 0;
        const auto lanes_and_steps = [&](const Alternative& a) {
          const RankPlan plan = find_algorithm(a.algorithm)->build(request, ranks - 1);
          return std::pair(plan.lanes.size(), plan.steps());
        };
        for (const Alternative& other : all)
          if (other.predicted_us <= 1.03 * fastest_us) {
            EXPECT_LE(lanes_and_steps(all.front()), lanes_and_steps(other)) << other.algorithm;
            if (lanes_and_steps(all.front()) == lanes_and_steps(other)) {
              EXPECT_LE(choice->predicted_us, other.predicted_us) << other.algorithm;
            }
          }
      }
  EXPECT_GT(simpler_than_fastest, 0) << "else this test shows little";
}

TEST(Select, AForcedAlgorithmIsTakenEvenAcrossTheClass) {
  const auto choice = choose(request_of(Collective::all_reduce, 4), DataType::float32, ReduceOp::sum, 1000,
                             host_model(4, 4), {.algorithm = "ring", .slice_bytes = 4096});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, "ring");
  EXPECT_EQ(choice->slice_bytes, 4096U);
  EXPECT_THAT(choice->why, HasSubstr("it was asked for"));
}

TEST(Select, AForcedAlgorithmThatDoesNotFitIsAnErrorThatNamesThoseThatDo) {
  const auto wrong = choose(request_of(Collective::all_gather, 4), DataType::float32, ReduceOp::sum, 1000,
                            host_model(4, 4), {.algorithm = "tree"});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, AllOf(HasSubstr("'tree' that was asked for cannot do all-gather of 4 ranks"),
                                           HasSubstr("one_hop, staged, ring"), Not(HasSubstr("peer_"))));
  const auto unknown = choose(request_of(Collective::all_gather, 4), DataType::float32, ReduceOp::sum, 1000,
                              host_model(4, 4), {.algorithm = "rnig"});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("'rnig' that was asked for is unknown"));
}

}  // namespace
}  // namespace strait
