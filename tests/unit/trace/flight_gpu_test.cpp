// Of GPU ranks: what their GPUs have started and finished.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job.hpp"

namespace strait::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Flight, GpusSayWhetherTheyAreDone) {
  Job job(2, "cuda_p2p", 0);
  job.post(0, 1);
  job.post(1, 1);
  job.set_idle(0, true);
  job.set_idle(1, false);
  job.dump(0);
  job.dump(1);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("GPU: finished"), HasSubstr("GPU: running"),
                                HasSubstr("All ranks have posted #1, and it is not finished on: rank 1\n")));
}

/// Calls of graphs, which nobody posts.
TEST(Flight, GpusSayWhatTheyHaveStartedAndFinished) {
  Job job(2, "cuda_p2p", 0);
  for (std::uint64_t number = 1; number <= 3; ++number)
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      if (rank == 0 || number != 3) job.start(rank, number, 8);
  job.set_progress(0, {3, false});
  job.set_progress(1, {2, true});
  wait_a_while();
  job.dump(0);
  job.dump(1);
  EXPECT_THAT(job.said(), HasSubstr("GPU: unknown, has started its #2 all-reduce")) << "graphs count no ends";
  job.set_idle(1, true);
  job.dump(1);
  EXPECT_THAT(job.said(true),
              AllOf(HasSubstr("GPU: unknown, in its #3 all-reduce(count 8, int32, sum)\n"),
                    HasSubstr("GPU: finished, has finished its #2 all-reduce(count 8, int32, sum)\n"),
                    HasSubstr("  on the GPU its #2 all-reduce(count 8, int32, sum), started "),
                    HasSubstr("Behind: the GPU of rank 1 has not started collective 3, as rank 0 did\n"),
                    HasSubstr("Not finished on the GPU: what was started last on rank 0\n")));
  std::ifstream file(job.folder() + "/" + job.recorder(0).file_name());
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["seen"][0]["last_started"], 3);
  EXPECT_EQ(json["seen"][0]["last_finished"], 2);
  EXPECT_EQ(json["seen"][0]["started"][1]["finished"], true);
  EXPECT_EQ(json["seen"][0]["started"][2]["finished"], false);
  EXPECT_TRUE(json["seen"][1]["started"][1]["finished"].is_null()) << "of another rank's GPU it is not known";
}

/// Each rank copies what its own GPU has started, for its own file.
TEST(Flight, WhatGpusStartedBetweenTheFilesLeavesNobodyBehind) {
  Job job(2, "cuda_p2p", 0);
  for (std::uint32_t rank = 0; rank < 2; ++rank) job.start(rank, 1, 8);
  job.set_idle(0, true);
  job.set_idle(1, true);
  job.dump(0);
  wait_a_while();
  job.start(1, 2, 8);
  job.dump(1);
  EXPECT_THAT(job.said(),
              AllOf(HasSubstr("Cannot tell: the GPU of rank 0 had not started collective 2 when last seen, "),
                    HasSubstr(" before rank 1 did\n"), HasSubstr("GPU: finished"), Not(HasSubstr("Behind"))));
  job.start(0, 2, 8);
  job.dump(1);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("GPU: unknown, has started its #2 all-reduce"), Not(HasSubstr("had not"))))
      << "what rank 0 said of its GPU is older";
}

/// What a waiting kernel told once does not come back, however long nothing waits.
TEST(Flight, OfAGpuOfAnotherHostWithoutAFileNothingIsSaid) {
  Job job(2, "tcp", 0);
  job.start(0, 1, 8);
  wait_a_while();
  job.dump(0);
  EXPECT_THAT(job.said(), Not(HasSubstr("GPU of rank 1")));
  job.dump(1);
  EXPECT_THAT(job.said(), HasSubstr("the GPU of rank 1 has not started collective 1"));
}

TEST(Flight, WhatKernelsTellThatWaitIsTaken) {
  Job job(1, "cuda_p2p", 0);
  job.start_and_wait(0, 1, 8);
  EXPECT_EQ(job.mailbox(0).started.calls[1], 0u);
  job.set_progress(0, {1, false});
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("in its #1 all-reduce"));
  for (const std::uint64_t number : {std::uint64_t{1} << 30, std::uint64_t{1} << 31, (std::uint64_t{1} << 31) + 2})
    job.start(0, number, 8);
  job.start_and_wait(0, (std::uint64_t{1} << 31) + 3, 8);
  job.set_progress(0, {(1u << 31) + 3, false});
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("in its #2147483651 all-reduce"));
}

TEST(Flight, CallsThatGpusStartedDifferentlyAreShown) {
  Job job(2, "cuda_p2p", 0);
  job.start(0, 1, 1000);
  job.start(1, 1, 2000);
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("Collective 1 on GPUs differs: rank 0 started all-reduce(count 1000, int32, sum), "
                                    "rank 1 started all-reduce(count 2000, int32, sum)\n"));
}

TEST(Flight, MessagesOnGpusComeAfterCollectives) {
  Job job(1, "cuda_p2p", 0);
  job.start(0, 1, 8);
  job.set_progress(0, {1, false});
  job.start_message(0, 1);
  job.dump(0);
  EXPECT_THAT(job.said(true),
              AllOf(HasSubstr("in send-recv(count 16, uint8) after its #1\n"), HasSubstr(" ago, finished\n")));
  job.start(0, 2, 8);
  job.set_progress(0, {2, false});
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("in its #2 all-reduce"));
}

/// Between two launches of a call nothing runs, though it is not done.
TEST(Flight, OfACallInPartsTheEndIsKnownWhenTheGpuIsIdle) {
  Job job(1, "islands", 0);
  job.start(0, 1, 8, true);
  job.set_progress(0, {1, true});
  job.set_idle(0, false);
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("GPU: running, has started its #1 all-reduce"));
  job.set_idle(0, true);
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("GPU: finished, has finished its #1 all-reduce"));
}

/// What is queued behind such a call starts, and gives up at once.
TEST(Flight, AfterACallGaveUpNothingIsPutDown) {
  for (std::uint32_t kernels::Mailbox::*word : {&kernels::Mailbox::abort, &kernels::Mailbox::timed_out}) {
    Job job(1, "cuda_p2p", 0);
    job.start(0, 1, 8);
    job.mailbox(0).*word = 1;
    job.start(0, 2, 8);
    job.set_progress(0, {});
    job.dump(0);
    EXPECT_THAT(job.said(), HasSubstr("in its #1 all-reduce"));
  }
}

TEST(Flight, NumbersOnGpusWrap) {
  Job job(1, "cuda_p2p", 0);
  constexpr std::uint64_t period = std::uint64_t{1} << 32;
  // All but the last have the same place.
  for (const std::uint64_t number : {period / 4, period / 2, period / 4 * 3, period - 64, period, period + 1})
    job.start(0, number, 8);
  job.dump(0);
  const auto flights = flights_in(job.folder());
  ASSERT_TRUE(flights);
  EXPECT_EQ(flights->front().ranks.front().started.back().sequence, period + 1);
}

}  // namespace
}  // namespace strait::trace
