#include "perf/axis.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::perf {
namespace {

using ::testing::ElementsAre;

TEST(LogAxis, EndsAtRoundNumbersAroundTheValues) {
  const LogAxis axis = LogAxis::around({3.0, 70.0}, 0, 100);
  EXPECT_DOUBLE_EQ(axis.low(), 2);
  EXPECT_DOUBLE_EQ(axis.high(), 100);
  EXPECT_DOUBLE_EQ(axis.position(2), 0);
  EXPECT_DOUBLE_EQ(axis.position(100), 100);
}

TEST(LogAxis, OneRoundValueStillHasAnExtent) {
  const LogAxis axis = LogAxis::around({5.0}, 0, 100);
  EXPECT_LT(axis.low(), axis.high());
  EXPECT_GE(axis.position(5), 0);
  EXPECT_LE(axis.position(5), 100);
}

TEST(LogAxis, TicksThinOut) {
  EXPECT_THAT(LogAxis(1, 10, 0, 1).decimal_ticks(), ElementsAre(1, 2, 5, 10));
  EXPECT_THAT(LogAxis(1, 1e6, 0, 1).decimal_ticks(), ::testing::SizeIs(7));
  EXPECT_THAT(LogAxis(8, 64, 0, 1).binary_ticks(9), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(LogAxis(8, 2048, 0, 1).binary_ticks(5), ElementsAre(8, 32, 128, 512, 2048));
}

TEST(Labels, AreShort) {
  EXPECT_EQ(tick_label(0.05), "0.05");
  EXPECT_EQ(tick_label(20000), "20000");
  EXPECT_EQ(bytes_label(8), "8");
  EXPECT_EQ(bytes_label(65536), "64K");
  EXPECT_EQ(bytes_label(1 << 30), "1G");
}

}  // namespace
}  // namespace strait::perf
