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
      EXPECT_EQ(find_algorithm(alternative.algorithm)->numerics(request), Numerics::rank_order);
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

TEST(Select, AlternativesAreOrderedByTime) {
  const auto choice =
      choose(request_of(Collective::all_gather, 6), DataType::float32, ReduceOp::sum, 1 << 20, host_model(6, 6));
  ASSERT_TRUE(choice);
  ASSERT_GT(choice->alternatives.size(), 2U);
  EXPECT_EQ(choice->alternatives.front().algorithm, choice->algorithm);
  for (std::size_t i = 1; i < choice->alternatives.size(); ++i)
    EXPECT_LE(choice->alternatives[i - 1].predicted_us, choice->alternatives[i].predicted_us);
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
