// One process at a time measures for a calibration file, and leaves no file behind.
#include "doctor/turn.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "support/temporary_folder.hpp"

namespace strait::doctor {
namespace {

TEST(Turn, LeavesNothingBehind) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("folder/machine.json");
  {
    const auto turn = take_turn(path);
    ASSERT_TRUE(turn) << turn.error().message;
    EXPECT_TRUE(std::filesystem::exists(path + ".measuring"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(tree.path("folder")));
}

TEST(Turn, AFileLeftByAKilledProcessIsNoObstacle) {
  const testing::TemporaryFolder tree;
  tree.write("machine.json.measuring", "");
  EXPECT_TRUE(take_turn(tree.path("machine.json")));
  EXPECT_TRUE(std::filesystem::is_empty(tree.path()));
}

/// Locks belong to open files, so that threads exclude one another as processes do.
TEST(Turn, IsOfOneAtATimeThoughTheFileIsRemovedInBetween) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("machine.json");
  std::atomic<int> holders = 0;
  std::atomic<int> failures = 0;
  const auto take_turns = [&] {
    for (int i = 0; i < 3; ++i) {
      const auto turn = take_turn(path);
      if (!turn || holders.fetch_add(1) != 0) ++failures;
      std::this_thread::sleep_for(std::chrono::milliseconds(60));  // others look every 50 ms
      holders.fetch_sub(1);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(take_turns);
  }
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(std::filesystem::is_empty(tree.path()));
}

}  // namespace
}  // namespace strait::doctor
