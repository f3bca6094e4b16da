// The basis of emulated kernels: fibers that meet, take turns in an order that depends on the seed, and never hang.
#include "support/fibers.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace strait::testing {
namespace {

constexpr std::uint32_t count = 300;

std::vector<std::uint32_t> order(std::uint32_t seed) {
  std::vector<std::uint32_t> order;
  std::uint32_t resumed = 0;
  Fibers::run(
      count, seed,
      [&](std::uint32_t fiber) {
        for (int turn = 0; turn < 3; ++turn) {
          EXPECT_EQ(resumed, fiber);
          order.push_back(fiber);
          Fibers::let_others();
        }
      },
      [&](std::uint32_t fiber) { resumed = fiber; });
  return order;
}

TEST(Fibers, AllRunInAnOrderOfTheSeed) {
  const std::vector<std::uint32_t> first = order(1);
  EXPECT_EQ(first.size(), 3 * count);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), count);
  EXPECT_EQ(first, order(1));
  EXPECT_NE(first, order(2));
}

TEST(Fibers, NobodyLeavesAMeetingBeforeAllHaveCome) {
  Fibers::Meeting meeting(count);
  std::vector<int> rounds(count, 0);
  Fibers::run(
      count, 7,
      [&](std::uint32_t fiber) {
        for (int round = 1; round <= 20; ++round) {
          if (fiber % 3 == 0) Fibers::let_others();
          rounds[fiber] = round;
          meeting.arrive_and_wait();
          EXPECT_EQ(std::accumulate(rounds.begin(), rounds.end(), 0), static_cast<int>(count) * round);
          meeting.arrive_and_wait();
        }
      },
      [](std::uint32_t) {});
}

TEST(FibersDeathTest, WaitsThatNeverEndAreAnError) {
  const auto run = [] {
    Fibers::Meeting meeting(3);
    Fibers::run(
        3, 1,
        [&](std::uint32_t fiber) {
          if (fiber != 1) meeting.arrive_and_wait();
        },
        [](std::uint32_t) {});
  };
  EXPECT_DEATH(run(), "2 threads of a block wait for others that never come");
}

}  // namespace
}  // namespace strait::testing
