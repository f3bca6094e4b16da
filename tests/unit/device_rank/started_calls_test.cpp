// How ranks compare the calls that their GPUs have started, also in graphs. Without a GPU.
#include "device/started_calls.hpp"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "fake_device_rank.hpp"
#include "gpu_ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two ranks that capture calls. The test then marks calls as started, as their GPUs do when graphs are launched.
class StartedCallsTest : public ::testing::Test {
 protected:
  StartedCallsTest() {
    fake_gpu.launch_error.clear();
    fake_gpu.captures = true;
    fake_gpu.has_attendants = true;
    fake_gpu.counts = {};
    fake_gpu.mailboxes = {};
    for (std::atomic<int>& reads : fake_gpu.reads) reads = 0;
    comms_ = join_in_a_group(2);
  }
  ~StartedCallsTest() override {
    fake_gpu.captures = false;
    for (straitComm_t comm : comms_)
      if (comm != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(comm));
    fake_gpu.has_attendants = false;
  }
  void capture_message(std::size_t rank) {
    std::array<float, 8> values{};
    STRAIT_EXPECT_OK(straitRecv(values.data(), 3, straitFloat32, static_cast<int>(other(rank)), comms_[rank], nullptr));
  }
  /// Marks that the rank's GPU has started messages after the collective with number `after`.
  static void start_message(std::size_t rank, std::uint64_t after) {
    Call call;
    call.collective = Collective::send_recv;
    call.type = DataType::float32;
    call.count = 3;
    std::atomic_ref(fake_gpu.counts[rank].started.messages).store(after << 32 | mark_of(signature(call)));
  }
  void capture(std::size_t rank, std::size_t count, straitRedOp_t op = straitSum) {
    std::array<float, 8> values{};
    STRAIT_EXPECT_OK(straitAllReduce(values.data(), values.data(), count, straitFloat32, op, comms_[rank], nullptr));
  }
  /// Marks that the rank's GPU has started the collective with that number, as the kernels of a launch do.
  static void start(std::size_t rank, std::uint64_t number, std::size_t count, ReduceOp op = ReduceOp::sum) {
    Call call;
    call.collective = Collective::all_reduce;
    call.type = DataType::float32;
    call.op = op;
    call.count = count;
    std::atomic_ref(fake_gpu.counts[rank].started.calls[number % kernels::kept_marks])
        .store(number << 32 | mark_of(signature(call)));
  }
  /// Starts a thread that reports repeatedly, as a kernel would, that the rank's GPU waits for the other rank.
  static std::jthread wait(std::size_t rank) { return wait_for(rank, other(rank)); }
  static std::jthread wait_for(std::size_t rank, std::uint32_t whom) {
    return std::jthread([=](const std::stop_token& stop) {
      for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(2)))
        say_that_it_waits(rank, whom + 1);
    });
  }
  /// Starts one collective on both ranks, then another one on rank 0, and messages on rank 1.
  void start_apart() {
    for (std::size_t rank = 0; rank < 2; ++rank) capture(rank, 3);
    capture(0, 5);
    capture_message(1);
    for (std::size_t rank = 0; rank < 2; ++rank) start(rank, 1, 3);
    start(0, 2, 5);
    start_message(1, 1);
  }
  /// Like start_apart(). Rank 1 has waited for rank 0 in its messages for a while, and does so no more.
  void start_apart_after_a_wait() {
    start_apart();
    for (int times = 0; times < 3; ++times) {
      say_that_it_waits(1, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  static std::uint32_t other(std::size_t rank) { return rank == 0 ? 1 : 0; }
  static void say_that_it_waits(std::size_t rank, std::uint32_t waits) {
    std::atomic_ref(fake_gpu.mailboxes[rank].waits) = waits;
  }
  void destroy(std::size_t rank) { STRAIT_EXPECT_OK(straitCommDestroy(std::exchange(comms_[rank], nullptr))); }
  straitResult_t error_of(std::size_t rank) const {
    straitResult_t error = straitSuccess;
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comms_[rank], &error));
    return error;
  }
  void expect_mismatch(const char* first, const char* second) const {
    const Stopwatch watch;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      while (error_of(rank) == straitSuccess && watch.elapsed() < std::chrono::seconds(10))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(error_of(rank), straitMismatch);
      EXPECT_THAT(straitGetLastError(comms_[rank]),
                  AllOf(HasSubstr(first), HasSubstr(second), HasSubstr("rank 0 (host "), HasSubstr("rank 1 (host ")));
    }
    EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
  }
  /// Waits long enough for each rank to look at the other many times, and expects no error.
  void expect_no_error() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(error_of(rank), straitSuccess);
  }
  std::vector<straitComm_t> comms_;
};

TEST_F(StartedCallsTest, CallsThatDifferAreShownToAll) {
  capture(0, 3);
  capture(1, 5);
  for (std::size_t rank = 0; rank < 2; ++rank) start(rank, 1, rank == 0 ? 3 : 5);
  const std::jthread waits = wait(1);  // the other GPU may not be waiting any more
  expect_mismatch("all-reduce(count 3, float32, sum)", "all-reduce(count 5, float32, sum)");
}

TEST_F(StartedCallsTest, CallsThatDifferLaterAreShownToAll) {
  for (std::size_t rank = 0; rank < 2; ++rank) {
    capture(rank, 3);
    capture(rank, 3, rank == 0 ? straitMax : straitMin);
    for (std::uint64_t number = 1; number <= 100; ++number) start(rank, number, 3);
  }
  const std::jthread waits = wait(0);
  expect_no_error();
  start(0, 101, 3, ReduceOp::max);
  expect_no_error();  // the other GPU has not reached it yet
  start(1, 101, 3, ReduceOp::min);
  expect_mismatch("float32, max)", "float32, min)");
  EXPECT_THAT(straitGetLastError(comms_[0]), HasSubstr("number 101 of the collectives on its GPU"));
}

/// GPUs are not queried while no kernel waits. Once one does, all are queried.
TEST_F(StartedCallsTest, GpusAreAskedWhereOneWaits) {
  for (std::size_t rank = 0; rank < 2; ++rank) capture(rank, 3);
  for (std::size_t rank = 0; rank < 2; ++rank) start(rank, 1, 3);
  expect_no_error();
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(fake_gpu.reads[rank], 0);
  say_that_it_waits(1, 1);
  const Stopwatch watch;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    while (fake_gpu.reads[rank] == 0 && watch.elapsed() < std::chrono::seconds(10)) std::this_thread::yield();
    EXPECT_GE(fake_gpu.reads[rank], 1) << rank;
  }
  expect_no_error();
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(fake_gpu.reads[rank], 1) << "it waits no more";
}

/// Only calls with the same number are compared, however far apart the ranks are, and whatever they do next.
TEST_F(StartedCallsTest, RanksMayBeFarApart) {
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (const std::size_t count : {3, 4, 5}) capture(rank, count);
  const std::jthread waits = wait(1);
  const auto count_of = [](std::uint64_t number) { return 3 + number % 3; };
  std::uint64_t ahead = 0;
  for (std::uint64_t behind = 1; behind < 300; ++behind) {
    for (; ahead < behind + 37; ++ahead) start(0, ahead + 1, count_of(ahead + 1));
    start(1, behind, count_of(behind));
    std::this_thread::sleep_for(std::chrono::microseconds(behind % 7 * 300));
  }
  expect_no_error();
  start(1, 300, count_of(301));
  expect_mismatch("all-reduce(count 3, float32, sum)", "all-reduce(count 4, float32, sum)");
}

/// One rank captures a call that the other makes directly: on the GPUs it is the same call.
TEST_F(StartedCallsTest, MayBeCallsOfTheOtherRank) {
  fake_gpu.captures = false;
  fake_gpu.capturing_rank = 1;
  const std::jthread waits = wait(0);
  for (std::uint64_t number = 1; number <= 3; ++number)
    for (std::size_t rank = 0; rank < 2; ++rank) {
      capture(rank, number);
      start(rank, number, number);
    }
  expect_no_error();
  fake_gpu.capturing_rank = -1;
}

/// If a collective and messages wait for each other, no number is common to them by which they could be compared.
TEST_F(StartedCallsTest, MessagesAndACollectiveThatWaitForOneAnotherAreShownToAll) {
  start_apart();
  const std::jthread first = wait(0), second = wait(1);
  expect_mismatch("all-reduce(count 5, float32, sum)", "send-recv(count 3, float32)");
  EXPECT_THAT(straitGetLastError(comms_[0]), HasSubstr("each GPU waits for the other"));
}

/// A rank that waits in a collective is not in conflict with messages that wait for another rank or are over.
TEST_F(StartedCallsTest, MessagesAndACollectiveThatDoNotWaitForOneAnotherAreNone) {
  start_apart();
  {
    const std::jthread first = wait(0);
    expect_no_error();                           // the other rank may still call it
    const std::jthread second = wait_for(1, 2);  // for a third rank
    expect_no_error();
  }
  capture(1, 5);
  start(1, 2, 5);
  const std::jthread first = wait(0),
                     second = wait(1);  // both wait in the same collective for data of a third rank
  expect_no_error();
}

/// Rank 1 has waited for rank 0 in messages, has got them, and computes, while rank 0 waits for it in a collective.
TEST_F(StartedCallsTest, MessagesThatAreOverAreNoError) {
  start_apart_after_a_wait();
  const std::jthread first = wait(0);
  expect_no_error();
}

/// Rank 1 has waited for rank 0 in messages, and then waits in them for nobody in particular.
TEST_F(StartedCallsTest, MessagesThatWaitForSomethingElseAreNoError) {
  start_apart_after_a_wait();
  const std::jthread second = wait_for(1, ~std::uint32_t{0} - 1), first = wait(0);
  expect_no_error();
}

/// Rank 0 waits in a collective that comes before the other rank's messages.
TEST_F(StartedCallsTest, ARankThatIsBehindIsNoError) {
  for (std::size_t rank = 0; rank < 2; ++rank) capture(rank, 3);
  capture_message(1);
  for (std::size_t rank = 0; rank < 2; ++rank) start(rank, 1, 3);
  start_message(1, 1);
  const std::jthread first = wait(0), second = wait(1);
  expect_no_error();
}

TEST_F(StartedCallsTest, WaitsForARankThatHasLeftAreAnError) {
  destroy(1);
  const std::jthread waits = wait(0);
  const Stopwatch watch;
  while (error_of(0) == straitSuccess && watch.elapsed() < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(error_of(0), straitRemoteError);
  EXPECT_THAT(straitGetLastError(comms_[0]),
              AllOf(HasSubstr("a kernel on rank 0 (host "), HasSubstr("needs rank 1 (host "),
                    HasSubstr("which has destroyed its communicator. Let it make the same calls")));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

/// A rank's data from before it left counts, and the report of a wait that has ended may arrive late.
TEST_F(StartedCallsTest, ShortWaitsForARankThatHasLeftAreNone) {
  const auto stays_usable = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return error_of(0) == straitSuccess;
  };
  say_that_it_waits(0, 2);
  EXPECT_TRUE(stays_usable());
  destroy(1);
  for (int times = 0; times < 4; ++times) {
    say_that_it_waits(0, 2);
    EXPECT_TRUE(stays_usable());
  }
  for (int times = 0; times < 10; ++times)
    for (const std::uint32_t nobody : {1u, 3u, ~0u}) {
      say_that_it_waits(0, nobody);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  EXPECT_TRUE(stays_usable());
}

/// The memory for known calls is bounded even if counts never repeat. Captured calls stay known, because graphs may be
/// launched at any time.
TEST(StartedCalls, OfVeryManyCallsTheLastAreKnownAndThoseThatWereCaptured) {
  constexpr std::size_t captured = 1, first = 2, last = 200'000;
  const auto call_of = [](std::size_t count) {
    Call call;
    call.collective = Collective::all_reduce;
    call.count = count;
    return signature(call);
  };
  StartedCalls calls;
  calls.note_call({.signature = call_of(captured), .is_captured = true});
  for (std::size_t count = first; count <= last; ++count) calls.note_call({.signature = call_of(count)});
  const auto is_known = [&](std::size_t count) {
    kernels::StartedMarks started{};
    kernels::Mailbox mailbox{};
    RankControl control;
    started.calls[1] = std::uint64_t{1} << 32 | mark_of(call_of(count));
    calls.record(started, mailbox, control);
    return control.started[1].sequence == 1;
  };
  EXPECT_TRUE(is_known(captured));
  EXPECT_FALSE(is_known(first));
  EXPECT_TRUE(is_known(last));
}

}  // namespace
}  // namespace strait::testing
