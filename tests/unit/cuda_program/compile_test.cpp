#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "executor/plan_on_gpu/program.hpp"
#include "plan/request.hpp"

namespace strait::cuda {
namespace {

using ::testing::HasSubstr;

PlanRequest all_reduce(std::uint32_t ranks) {
  PlanRequest request;
  request.ranks = ranks;
  request.peer_memory = true;
  return request;
}

Plan two_hop(std::uint32_t ranks) { return build_all(*find_algorithm("two_hop"), all_reduce(ranks)); }

TEST(CudaProgram, EachReaderOfALinkIsAChannelWithSlotsInItsOwnMemory) {
  const auto program = compile(build_all(*find_algorithm("one_hop"), all_reduce(4)), {});
  ASSERT_TRUE(program) << program.error().message;
  for (const RankProgram& rank : program->ranks) {
    ASSERT_EQ(rank.channels.size(), 6U);  // three readers, three writers
    for (const Channel& channel : rank.channels) {
      const bool writes = channel.credit > 0;
      EXPECT_EQ(channel.slots.rank, writes ? channel.peer : rank.rank);
      EXPECT_EQ(channel.waited.rank, rank.rank);
      EXPECT_EQ(channel.posted.rank, channel.peer);
    }
  }
}

TEST(CudaProgram, AChannelsEndsPostWhereTheOtherWaits) {
  for (const Plan& plan : {two_hop(3), build_all(*find_algorithm("peer_push"), all_reduce(3))}) {
    const auto program = compile(plan, {});
    ASSERT_TRUE(program) << program.error().message;
    for (const RankProgram& rank : program->ranks)
      for (const Channel& channel : rank.channels) {
        const auto& others = program->ranks[channel.peer].channels;
        const auto matches = std::count_if(others.begin(), others.end(), [&](const Channel& other) {
          return other.waited.offset == channel.posted.offset && other.posted.offset == channel.waited.offset &&
                 other.peer == rank.rank;
        });
        EXPECT_EQ(matches, 1);
      }
  }
}

TEST(CudaProgram, PacketsNeedNoCounterOfFilledSlots) {
  const auto simple = compile(two_hop(4), {.protocol = Protocol::simple});
  const auto packet = compile(two_hop(4), {.protocol = Protocol::packet});
  ASSERT_TRUE(simple && packet);
  EXPECT_EQ(packet->ranks[0].items.size() * 2, simple->ranks[0].items.size());
  EXPECT_GT(packet->ranks[0].arena_bytes, simple->ranks[0].arena_bytes * 3 / 2);
}

TEST(CudaProgram, PlansWithoutSlotsHaveUnboundedSlices) {
  EXPECT_TRUE(compile(two_hop(2), {})->bounded_slices);
  EXPECT_FALSE(compile(build_all(*find_algorithm("peer_push"), all_reduce(2)), {})->bounded_slices);
}

TEST(CudaProgram, RefusesWhatItCannotRun) {
  const auto message = [](const Plan& plan) {
    const auto program = compile(plan, {});
    EXPECT_FALSE(program);
    return program ? std::string() : program.error().message;
  };
  EXPECT_THAT(message(two_hop(9)), HasSubstr("more than 8 ranks"));
  Plan unmatched = two_hop(2);
  unmatched[0].links[0].tag = 77;
  EXPECT_THAT(message(unmatched), HasSubstr("lacks its end"));
  Plan uneven = build_all(*find_algorithm("peer_push"), all_reduce(2));
  uneven[0].lanes[0].steps[0].signals.push_back(uneven[0].lanes[0].steps[0].signals[0]);
  EXPECT_THAT(message(uneven), HasSubstr("unequally often"));
  Plan shared = two_hop(2);
  shared[0].lanes.push_back(shared[0].lanes[0]);
  EXPECT_THAT(message(shared), HasSubstr("share an end"));
}

}  // namespace
}  // namespace strait::cuda
