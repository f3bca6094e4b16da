// From the control words of ranks, through the files that recorders write, to what `strait trace` says of them.
#include "trace/flight.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "communicator/flight_recorder.hpp"
#include "communicator/started_calls.hpp"

namespace strait::trace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A communicator whose ranks do what the test says.
class Job {
 public:
  explicit Job(std::uint32_t ranks, const std::string& transport = "shm", int device = -1) : controls_(ranks) {
    char folder[] = "/tmp/strait_flight_XXXXXX";
    folder_ = mkdtemp(folder);
    std::vector<RankControl*> controls;
    for (RankControl& control : controls_) controls.push_back(&control);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      FlightRecorder::About about;
      about.communicator = 0xabcdef;
      about.rank = rank;
      for (std::uint32_t other = 0; other < ranks; ++other) about.names.push_back("rank " + std::to_string(other));
      about.host = "n7";
      about.pid = 100 + rank;
      about.transport = transport;
      about.device = device;
      about.is_idle = [this, rank] { return idle_[rank]; };
      about.progress = [this, rank] { return progress_[rank]; };
      recorders_.push_back(std::make_unique<FlightRecorder>(controls, about));
    }
  }
  ~Job() { std::filesystem::remove_all(folder_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void post(std::uint32_t rank, std::uint64_t sequence, Collective collective = Collective::all_reduce) {
    Call call;
    call.collective = collective;
    call.type = DataType::int32;
    call.count = 8;
    write_call(controls_[rank], sequence, {.signature = numbered(signature(call), sequence)});
  }
  void run(std::uint32_t rank, std::uint64_t sequence) {
    post(rank, sequence);
    recorders_[rank]->finish(sequence, false);
  }
  FlightRecorder& recorder(std::uint32_t rank) { return *recorders_[rank]; }
  RankControl& control(std::uint32_t rank) { return controls_[rank]; }
  void set_idle(std::uint32_t rank, bool idle) { idle_[rank] = idle; }
  void set_progress(std::uint32_t rank, DeviceProgress progress) { progress_[rank] = progress; }
  /// On its GPU.
  void start(std::uint32_t rank, std::uint64_t number, std::size_t count, bool has_parts = false) {
    Call call;
    call.count = count;
    call.type = DataType::int32;
    call.collective = Collective::all_reduce;
    started_[rank].know({.signature = signature(call), .is_captured = true, .has_parts = has_parts});
    counts_[rank].started.calls[number % kernels::kept_marks] = number << 32 | StartedCalls::mark_of(signature(call));
    started_[rank].put_down(counts_[rank].started, mailboxes_[rank], controls_[rank]);
  }
  /// Likewise, and its kernel waits and says so.
  void start_and_wait(std::uint32_t rank, std::uint64_t number, std::size_t count) {
    Call call;
    call.count = count;
    call.type = DataType::int32;
    call.collective = Collective::all_reduce;
    started_[rank].know({.signature = signature(call), .is_captured = true});
    mailboxes_[rank].started.calls[number % kernels::kept_marks] =
        number << 32 | StartedCalls::mark_of(signature(call));
    started_[rank].put_down_waits(mailboxes_[rank], controls_[rank]);
  }
  void start_message(std::uint32_t rank, std::uint64_t after) {
    Call call;
    call.collective = Collective::send_recv;
    call.count = 16;
    started_[rank].know({.signature = signature(call)});
    counts_[rank].started.messages = after << 32 | StartedCalls::mark_of(signature(call));
    started_[rank].put_down(counts_[rank].started, mailboxes_[rank], controls_[rank]);
  }
  kernels::Mailbox& mailbox(std::uint32_t rank) { return mailboxes_[rank]; }
  std::string folder() const { return folder_; }

  void dump(std::uint32_t rank) {
    ASSERT_TRUE(
        recorder(rank).dump(folder_ + "/" + recorder(rank).file_name(), "a test of rank " + std::to_string(rank)));
  }
  std::string said(bool all_calls = false) const {
    const auto flights = read_flights({folder_});
    EXPECT_TRUE(flights) << (flights ? "" : flights.error().message);
    return flights && flights->size() == 1 ? report(flights->front(), all_calls) : "";
  }

 private:
  std::vector<RankControl> controls_;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::array<std::optional<bool>, 4> idle_{};
  std::array<std::optional<DeviceProgress>, 4> progress_{};
  std::array<kernels::Mailbox, 4> mailboxes_{};
  std::array<kernels::LaunchCounts, 4> counts_{};
  std::array<StartedCalls, 4> started_;
  std::string folder_;
};

TEST(Flight, NamesTheRankThatIsBehind) {
  Job job(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) job.run(rank, 1);
  job.post(0, 2);
  job.post(2, 2);
  job.dump(0);  // one file tells of all ranks of the host
  EXPECT_THAT(job.said(), AllOf(HasSubstr("Communicator 0000000000abcdef of 3 ranks through shm\n"),
                                HasSubstr("Written because of: a test of rank 0\n"),
                                HasSubstr("Behind: rank 1 has not posted #2, which rank 0, rank 2 posted\n"),
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
                                Not(HasSubstr("as another rank saw it"))));
  job.post(0, 2);
  job.post(1, 2);
  job.recorder(1).finish(2, false);
  job.dump(1);
  EXPECT_THAT(job.said(), HasSubstr("Behind: rank 0 has not posted #2")) << "its own file is older, and is believed";
  job.dump(0);
  EXPECT_THAT(job.said(), HasSubstr("All ranks have posted #2, and it is not finished on: rank 0\n"));
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
  const auto flights = read_flights({job.folder()});
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
  const auto flights = read_flights({job.folder()});
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
  const auto flights = read_flights({job.folder()});
  ASSERT_TRUE(flights);
  const RecordedCall& call = flights->front().ranks.front().calls.front();
  EXPECT_EQ(call.finished_unix_us, call.posted_unix_us);
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
  Job job(2, "tcp");
  job.run(0, 1);
  job.post(1, 1);
  job.dump(0);
  EXPECT_THAT(job.said(), AllOf(HasSubstr("not known here (as another rank saw it)"),
                                HasSubstr("No rank is behind: all have posted #1; what has finished is not known")));
}

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

/// What a waiting kernel told once does not come back, however long nothing waits.
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
  const auto flights = read_flights({job.folder()});
  ASSERT_TRUE(flights);
  EXPECT_EQ(flights->front().ranks.front().started.back().sequence, period + 1);
}

TEST(Flight, WhatIsNoSuchFileIsRefusedByName) {
  Job job(1);
  EXPECT_THAT(read_flights({job.folder()}).error().message,
              AllOf(HasSubstr(job.folder()), HasSubstr("Set STRAIT_FLIGHT_RECORDER")));
  EXPECT_THAT(read_flights({job.folder() + "/none"}).error().message, HasSubstr("cannot read"));
  const std::string of_ranks =
      R"({"format": "strait flight recorder 1", "communicator": "a", "rank": 0, "seen": [], "transport": "shm",
          "unix_us": 1, "reason": "", "ranks": )";
  for (const std::string& text : {std::string(), std::string("{}"), std::string("{\"format\": \"something else\"}"),
                                  std::string("[1, 2"), of_ranks + "1000000000000}", of_ranks + "-1}"}) {
    std::ofstream(job.folder() + "/strait-flight-x.json", std::ios::trunc) << text;
    EXPECT_THAT(read_flights({job.folder()}).error().message, HasSubstr("strait-flight-x.json is not what")) << text;
  }
}

}  // namespace
}  // namespace strait::trace
