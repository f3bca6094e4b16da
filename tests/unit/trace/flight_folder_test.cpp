// The folder of STRAIT_FLIGHT_RECORDER where its file system does not answer for a while.
#include "communicator/flight_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "communicator/init_watch.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_folder.hpp"

namespace strait {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::atomic<bool> answers{false};
std::atomic<int> asked{0};

Status await_answer(const std::string& folder) {
  ++asked;
  while (!answers) std::this_thread::sleep_for(1ms);
  return folder.ends_with("full") ? Status(fail(Code::system_error, "no space is left")) : Status();
}

class FlightFolder : public ::testing::Test {
 protected:
  FlightFolder() {
    answers = false;
    asked = 0;
  }
  ~FlightFolder() override { unsetenv("STRAIT_FLIGHT_RECORDER"); }
  static void await_asked(int times) {
    const auto deadline = Clock::now() + 10s;
    while (asked < times && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(asked, times);
  }
  /// Lets the folder answer. Returns what is logged until no work with it is late any more.
  static std::string answer(const std::string& folder) {
    ::testing::internal::CaptureStderr();
    answers = true;
    const auto deadline = Clock::now() + 10s;
    while (!do_in_folder(folder, 10s, [] { return Status(); }) && Clock::now() < deadline)
      std::this_thread::sleep_for(1ms);
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(FlightFolder, ThatDoesNotAnswerIsAWarningAndHoldsUpNoInit) {
  setenv("STRAIT_FLIGHT_RECORDER", "/hanging", 1);
  ::testing::internal::CaptureStderr();
  const auto begin = Clock::now();
  auto init = std::async(std::launch::async, [] { prepare_flight_folder(Deadline::after_ms(2000), await_answer); });
  const bool returned = init.wait_for(20s) == std::future_status::ready;
  const auto waited = Clock::now() - begin;
  EXPECT_TRUE(returned);
  EXPECT_GE(waited, 190ms) << "a tenth of the time";
  await_asked(1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the flight recorder's files may be lost: the folder /hanging (STRAIT_FLIGHT_RECORDER) does "
                        "not answer. See whether its file system hangs"));
  EXPECT_THAT(answer("/hanging"), HasSubstr("the folder /hanging (STRAIT_FLIGHT_RECORDER) has answered after "));
}

TEST_F(FlightFolder, HasUpToATenthOfASecond) {
  setenv("STRAIT_FLIGHT_RECORDER", "/slow", 1);
  const auto begin = Clock::now();
  prepare_flight_folder(Deadline::after_ms(400), await_answer);
  EXPECT_GE(Clock::now() - begin, 95ms);
  answer("/slow");
}

TEST_F(FlightFolder, HasOneNameHoweverItIsSpelt) {
  setenv("STRAIT_FLIGHT_RECORDER", "/nfs/x//", 1);
  EXPECT_EQ(flight_folder(), "/nfs/x");
  setenv("STRAIT_FLIGHT_RECORDER", "/", 1);
  EXPECT_EQ(flight_folder(), "/");
}

/// A forked child uses the folder although other threads of its parent did so when it began.
TEST_F(FlightFolder, IsNotLockedInAForkedChild) {
  if (testing::is_sanitized)
    GTEST_SKIP() << "a child forked beside threads may wait for ever for the sanitizer's allocator";
  setenv("STRAIT_FLIGHT_RECORDER", "/forked", 1);
  std::atomic<bool> done{false};
  std::jthread busy([&] {
    while (!done) (void)flight_folder();
  });
  for (int times = 0; times < 50; ++times) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(flight_folder() == "/forked" ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  done = true;
}

TEST_F(FlightFolder, ThatFailsLateSaysWhy) {
  setenv("STRAIT_FLIGHT_RECORDER", "/full", 1);
  ::testing::internal::CaptureStderr();
  prepare_flight_folder(Deadline::after_ms(10), await_answer);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the folder /full (STRAIT_FLIGHT_RECORDER) does not"));
  EXPECT_THAT(answer("/full"), HasSubstr(" s: no space is left\n"));
}

TEST_F(FlightFolder, NothingMoreIsBegunInOneThatDoesNotAnswer) {
  const auto ask = [](const std::string& folder, std::chrono::milliseconds patience = 100ms) {
    return do_in_folder(folder, patience, [folder] { return await_answer(folder); });
  };
  EXPECT_FALSE(ask("/one"));
  EXPECT_FALSE(ask("/one"));
  await_asked(1);
  EXPECT_FALSE(ask("/other"));
  await_asked(2);  // that may be another file system
  answer("/one");
  answer("/other");
  EXPECT_TRUE(ask("/one", 10s));
  EXPECT_EQ(asked, 3);
}

TEST_F(FlightFolder, WhatIsDoneInTimeIsReturned) {
  answers = true;
  EXPECT_TRUE(do_in_folder("/f", 10s, [] { return await_answer("/f"); }));
  const Status failed = do_in_folder("/f", 10s, [] { return await_answer("/full"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no space is left");
}

TEST(InitFile, HasTheNameOfItsLastDumpAndGoesWhenItIsDiscarded) {
  const testing::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  const std::string unknown = folder / "rank.json", known = folder / "rank0.json";
  InitFile file;
  EXPECT_TRUE(file.write(unknown, -1, "{}"));
  EXPECT_TRUE(file.write(known, 0, "{}"));
  EXPECT_FALSE(std::filesystem::exists(unknown)) << "it would count as another rank";
  EXPECT_TRUE(file.write(known, 0, "{}"));
  EXPECT_TRUE(std::filesystem::exists(known));
  EXPECT_EQ(file.discard(), known);
  std::filesystem::remove(known);
  EXPECT_TRUE(file.write(known, 0, "{}"));
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the init is done";
  EXPECT_EQ(file.discard(), known) << "where it could not be removed it is asked for again";
}

}  // namespace
}  // namespace strait
