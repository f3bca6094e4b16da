// From the control words of ranks, through the files that recorders write, to what `strait trace` says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job.hpp"

namespace strait::trace {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Flight, NamesTheRankThatIsBehind) {
  Job job(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) job.run(rank, 1);
  job.post(0, 2);
  wait_a_while();
  job.post(2, 2);  // just now
  job.dump(0);     // one file tells of all ranks of the host
  EXPECT_THAT(job.said(), AllOf(HasSubstr("Communicator 0000000000abcdef of 3 ranks through shm\n"),
                                HasSubstr("Written because of: a test of rank 0\n"),
                                HasSubstr("Behind: rank 1 has not posted #2, which rank 0, rank 2 posted "),
                                HasSubstr("rank 0  #2 all-reduce(count 8, int32, sum)  in it, posted "),
                                HasSubstr("rank 1  #1 all-reduce(count 8, int32, sum)  finished ")));
}

TEST(Flight, SaysWhenNobodyIsBehind) {
  Job job(2);
  job.run(0, 1);
  job.run(1, 1);
  job.dump(0);
  job.dump(1);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("No rank is behind: all that was posted has finished\n"),
                                HasSubstr("The files were written within "), Not(HasSubstr("as another rank saw it"))));
  job.post(0, 2);
  job.post(1, 2);
  job.recorder(1).finish(2, false);
  job.dump(1);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("(as another rank saw it)"),
                                HasSubstr("All ranks have posted #2, and it is not finished on: rank 0\n")));
  job.recorder(0).finish(2, false);
  job.dump(1);
  EXPECT_THAT(job.said(), HasSubstr("No rank is behind: all that was posted has finished\n"));
}

/// One of them is older by any number of calls.
TEST(Flight, OfAHostsRanksTheFileThatSawMoreCounts) {
  for (const std::uint32_t first : {0U, 1U}) {
    Job job(2);
    for (std::uint64_t sequence = 1; sequence <= 30; ++sequence) {
      for (std::uint32_t rank = 0; rank < 2; ++rank) job.run(rank, sequence);
      if (sequence == 8) job.dump(first);
    }
    wait_a_while();
    job.dump(1 - first);
    EXPECT_THAT(job.said(), AllOf(HasSubstr("rank " + std::to_string(first) + "  #30 all-reduce"), HasSubstr("saw it)"),
                                  HasSubstr("No rank is behind: all that was posted has finished\n")));
  }
}

TEST(Flight, WhoHasPostedJustNowLeavesNobodyBehind) {
  Job job(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) job.run(rank, 1);
  job.run(1, 2);
  job.dump(1);
  job.set_written(1, 2, 300);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("Cannot tell: rank 0 had not posted #2 when last seen, 300.0 us after "
                                          "rank 1 posted it\n"),
                                Not(HasSubstr("ehind"))));
  job.set_written(1, 2, -300);
  EXPECT_THAT(job.said(), HasSubstr("when last seen, 300.0 us before rank 1 posted it\n"));
  job.set_written(1, 2, 100001);
  EXPECT_THAT(job.said(), HasSubstr("Behind: rank 0 has not posted #2, which rank 1 posted 100.0 ms ago\n"));
}

TEST(Flight, OfOtherHostsWhatWasPostedBetweenTheFilesLeavesNobodyBehind) {
  Job job(2, "tcp");
  for (std::uint32_t rank = 0; rank < 2; ++rank) job.run(rank, 1);
  job.dump(0);
  wait_a_while();
  job.run(1, 2);
  job.dump(1);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("Cannot tell: rank 0 had not posted #2 when last seen, "),
                                HasSubstr(" ms before rank 1 posted it\n"), Not(HasSubstr("ehind"))));
  wait_a_while();
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("Behind: rank 0 has not posted #2, which rank 1 posted "));
  job.run(0, 2);
  job.dump(1);
  EXPECT_THAT(job.said(),
              AllOf(HasSubstr("rank 0  #1 all-reduce"), HasSubstr("No rank is behind: all have posted #2; what has")))
      << "its own file counts, and rank 1 has heard of #2";
}

TEST(Flight, NamesTheRankThatOthersAwaitWhereAllHavePosted) {
  Job job(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) job.post(rank, 1);
  job.control(0).awaited = 1 + 1;
  job.control(2).awaited = 1 + 1;
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("Awaited: rank 1, by rank 0, rank 2\n"));
  job.recorder(0).finish(1, false);
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("Awaited: rank 1, by rank 2\n")) << "what has finished waits for nobody";
}

/// What its own file says may be older.
TEST(Flight, WhomARankAwaitsIsWhatTheFileSaysThatSawMore) {
  Job job(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) job.run(rank, 1);
  job.dump(0);
  for (std::uint32_t rank = 0; rank < 2; ++rank) job.post(rank, 2);
  job.control(0).awaited = 1 + 1;
  job.dump(1);
  EXPECT_THAT(job.said(), HasSubstr("Awaited: rank 1, by rank 0\n"));
}

TEST(Flight, ShowsTheFirstCallThatDiffers) {
  Job job(2);
  job.run(0, 1);
  job.run(1, 1);
  job.post(0, 2);
  job.post(1, 2, Collective::all_gather);
  job.dump(1);
  EXPECT_THAT(job.said(), HasSubstr("Call #2 differs: rank 0 made all-reduce(count 8, int32, sum), rank 1 made "
                                    "all-gather(count 8, int32)\n"));
}

TEST(Flight, KeepsTheLastCallsOnly) {
  Job job(1);
  for (std::uint64_t sequence = 1; sequence <= posted_calls + 5; ++sequence) job.run(0, sequence);
  job.dump(0);
  const auto flights = flights_in(job.folder());
  ASSERT_TRUE(flights);
  const auto& calls = flights->front().ranks.front().calls;
  EXPECT_EQ(calls.size(), posted_calls);
  EXPECT_EQ(calls.front().sequence, 6U);
  EXPECT_EQ(calls.back().sequence, posted_calls + 5);
  for (const RecordedCall& call : calls) EXPECT_GE(call.finished_unix_us.value_or(0), call.posted_unix_us);
}

TEST(Flight, TimesAreThoseOfTheClock) {
  Job job(1);
  const auto unix_us = [] {
    return std::chrono::duration<double, std::micro>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = unix_us();
  job.post(0, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.recorder(0).finish(1, false);
  const double after = unix_us();
  job.dump(0);
  const auto flights = flights_in(job.folder());
  ASSERT_TRUE(flights);
  const RecordedCall& call = flights->front().ranks.front().calls.front();
  EXPECT_NEAR(call.posted_unix_us, before, 10'000);
  EXPECT_NEAR(*call.finished_unix_us, after, 10'000);
  EXPECT_GE(*call.finished_unix_us - call.posted_unix_us, 49'000);
}

TEST(Flight, WhatWasDoneAtOnceEndedWhenItWasPosted) {
  Job job(1);
  job.post(0, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  job.recorder(0).finish(1, true);
  job.dump(0);
  const auto flights = flights_in(job.folder());
  ASSERT_TRUE(flights);
  const RecordedCall& call = flights->front().ranks.front().calls.front();
  EXPECT_EQ(call.finished_unix_us, call.posted_unix_us);
}

TEST(Flight, OfCallsThatDidNotWaitNoTimeIsGiven) {
  Job job(1);
  job.post(0, 1);
  job.recorder(0).finish(1, true);
  job.post(0, 2);
  wait_a_while();
  job.recorder(0).finish(2, false);
  job.dump(0);
  EXPECT_THAT(job.said(true),
              AllOf(HasSubstr(" ago, did not wait\n"), ContainsRegex(" ago, took ([0-9]{3}[.][0-9] ms|[0-9.]+ s)\n"),
                    Not(HasSubstr("took 0.0"))));
}

TEST(Flight, MessagesSayWhereTheyGo) {
  Job job(2);
  Call send, receive;
  send.collective = receive.collective = Collective::send_recv;
  send.count = receive.count = 16;
  send.sends = true;
  send.peer = receive.peer = 1;
  job.recorder(0).post_messages(std::vector{send, receive});
  job.recorder(0).finish_messages(false);
  job.recorder(0).post_messages(std::vector{receive});
  job.dump(0);
  EXPECT_THAT(job.said(true), AllOf(HasSubstr("#1 send-recv(count 16, uint8) to rank 1, posted "),
                                    HasSubstr("#2 send-recv(count 16, uint8) from rank 1, posted "),
                                    HasSubstr("Waiting: rank 0 in send-recv(count 16, uint8) from rank 1, posted "),
                                    Not(HasSubstr("Waiting: rank 0 in send-recv(count 16, uint8) to"))));
}

TEST(Flight, OfAGroupLargerThanTheRingTheLastAreFinished) {
  Job job(1);
  Call message;
  message.collective = Collective::send_recv;
  job.recorder(0).post_messages(std::vector(posted_calls + 10, message));
  job.recorder(0).finish_messages(false);
  job.dump(0);
  EXPECT_THAT(job.said(), Not(HasSubstr("Waiting")));
}

TEST(Flight, WhatAnotherHostFinishedIsNotKnown) {
  for (const char* const transport : {"tcp", "tcp+ucx"})
    for (const bool is_old : {false, true}) {
      Job job(2, transport);
      job.run(0, 1);
      job.post(1, 1);
      job.dump(0);
      if (is_old) job.make_old(0);
      EXPECT_THAT(job.said(),
                  AllOf(HasSubstr("not known here (as another rank saw it)"),
                        HasSubstr("No rank is behind: all have posted #1; what has finished is not known")));
    }
}

TEST(Flight, WhatIsNoSuchFileIsRefusedByName) {
  Job job(1);
  EXPECT_THAT(flights_in(job.folder()).error().message,
              AllOf(HasSubstr(job.folder()), HasSubstr("Set STRAIT_FLIGHT_RECORDER")));
  EXPECT_THAT(flights_in(job.folder() + "/none").error().message, HasSubstr("cannot read"));
  const std::string of_ranks =
      R"({"format": "strait flight recorder 1", "communicator": "a", "rank": 0, "seen": [], "transport": "shm",
          "unix_us": 1, "reason": "", "ranks": )";
  for (const std::string& text : {std::string(), std::string("{}"), std::string("{\"format\": \"something else\"}"),
                                  std::string("[1, 2"), of_ranks + "1000000000000}", of_ranks + "-1}"}) {
    std::ofstream(job.folder() + "/strait-flight-x.json", std::ios::trunc) << text;
    const bool is_whole = text.ends_with('}');
    EXPECT_THAT(flights_in(job.folder()).error().message,
                AllOf(HasSubstr(is_whole ? "strait-flight-x.json is not what a flight recorder writes: "
                                         : "strait-flight-x.json is cut short, or no JSON: "),
                      Not(HasSubstr("exception"))))
        << text;
  }
}

/// As of a rank that was killed while it wrote, or of a full disk.
TEST(Flight, AFileThatIsCutShortIsNamedAndTheOthersCount) {
  Job job(2);
  job.post(0, 1);
  job.dump(0);
  std::ofstream(job.folder() + "/strait-flight-cut.json") << R"({"format": "strait flight rec)";
  std::ofstream(job.folder() + "/strait-flight-other.json")
      << R"({"format": "strait flight recorder 1", "communicator": "b", "rank": 0, "ranks": 1, "transport": "shm",
             "unix_us": 1, "reason": "", "seen": [{}]})";
  const auto recorded = read_files({job.folder()});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->runs.size(), 1U);
  const auto& run = recorded->runs.front();
  ASSERT_EQ(run.flights.size(), 1U);
  EXPECT_EQ(run.flights.front().ranks.size(), 2U);
  const auto& left_out = recorded->left_out;
  ASSERT_EQ(left_out.size(), 2U);
  EXPECT_THAT(left_out[0], HasSubstr("strait-flight-cut.json is cut short"));
  EXPECT_THAT(left_out[1], HasSubstr("strait-flight-other.json is not what"));
}

TEST(Flight, ControlCharactersReachNoTerminal) {
  Job job(1);
  std::ofstream(job.folder() + "/strait-flight-x.json") << R"({"format": "strait flight recorder 1",
      "communicator": "\u001b[2Jc", "rank": 0, "ranks": 1, "transport": "\u009bshm", "unix_us": 1, "reason": "\r\nall is well",
      "seen": [{"name": "rank 0 \u007f", "left": false, "awaits": null, "messages": [],
                "calls": [{"sequence": 1, "call": "b\u0007", "to": "\u001b", "posted_unix_us": 1, "finished_unix_us": null}]}]})";
  const auto flights = flights_in(job.folder());
  ASSERT_TRUE(flights) << flights.error().message;
  const std::string text = report(flights->front(), true);
  for (const char letter : text) EXPECT_TRUE(letter == '\n' || (letter >= ' ' && letter != 0x7f)) << int{letter};
  EXPECT_THAT(text, AllOf(HasSubstr("Communicator \\x1b[2Jc of 1 ranks through \\x9bshm\n"),
                          HasSubstr("Written because of: \\x0d\\x0aall is well\n"), HasSubstr("#1 b\\x07")));
}

}  // namespace
}  // namespace strait::trace
