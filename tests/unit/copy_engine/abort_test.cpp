// No wait outlives an abort, and nothing is left behind that waits.
#include <gtest/gtest.h>

#include <chrono>

#include "machine.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using staged::StagedCall;
using staged::StagedCopies;
using namespace std::chrono_literals;

/// What an operation still copies after an abort is undefined: races there are no defects, and reporting them takes the
/// thread sanitizer minutes.
#define STRAIT_SKIP_UNDER_THREAD_SANITIZER() \
  if (one_view) GTEST_SKIP() << "copies race after an abort"

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce};

StagedCall call_of(Collective collective, Bytes& send, Bytes& receive, std::size_t count) {
  return {
      .collective = collective, .type = DataType::int8, .count = count, .send = send.data(), .receive = receive.data()};
}

/// Rank 1 never calls. Rank 0 waits with a queue of operations until somebody aborts.
TEST(StagedAbort, EndsWaitsForARankThatNeverComes) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  for (const Collective collective : collectives)
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE(name(collective));
      Machine machine(3, 6 << 20);
      Bytes send(1 << 20), receive(1 << 20);
      Rank rank(machine, 0, small_options(), {.one_queue = one_queue});
      Rank other(machine, 1, small_options(), {.one_queue = one_queue});
      for (int i = 0; i < 3; ++i)
        ASSERT_TRUE(rank.copies->enqueue(call_of(collective, send, receive, 300'000), rank.stream));
      std::this_thread::sleep_for(20ms);
      EXPECT_FALSE(rank.driver->is_idle(rank.stream));
      const auto wait = rank.copies->wait();
      ASSERT_TRUE(wait);
      EXPECT_GE(wait->duration, 1ms);
      EXPECT_TRUE(wait->rank == 1 || wait->rank == 2);
      EXPECT_FALSE(other.copies->wait());

      const auto began = std::chrono::steady_clock::now();
      rank.copies->abort();
      rank.driver->finish(rank.stream);
      EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
      for (Rank* each : {&rank, &other}) {
        const Status refused = each->copies->enqueue(call_of(collective, send, receive, 1), each->stream);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Code::aborted);
      }
    }
}

/// The others hear of it by the communicator's failure, or by the shared memory where reducers wait.
TEST(StagedAbort, AllRanksEndWhileChunksAreUnderWay) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  for (int attempt = 0; attempt < 12; ++attempt) {
    const Collective collective = collectives[attempt % std::size(collectives)];
    SCOPED_TRACE(name(collective));
    Machine machine(4, 6 << 20);
    as_threads(4, [&](std::uint32_t number) {
      Bytes send(4 << 20), receive(4 << 20);
      Rank rank(machine, number, small_options(), {.seed = number, .one_queue = attempt % 2 == 1});
      // Some ranks get further than others before it happens.
      for (std::uint32_t i = 0; i < 2 + number; ++i)
        if (!rank.copies->enqueue(call_of(collective, send, receive, 1 << 20), rank.stream)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(attempt + number));
      if (number == 2) {
        rank.copies->abort();
        machine.failed() = true;
      }
      // The destructor ends what is left, with the buffers still there.
      const auto began = std::chrono::steady_clock::now();
      rank.copies.reset();
      EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
    });
  }
}

TEST(StagedAbort, AFailedCommunicatorEndsReducersAlone) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  Machine machine(2, 4 << 20);
  Bytes data(1 << 20);
  Rank rank(machine, 0, small_options(), {});
  ASSERT_TRUE(rank.copies->enqueue(call_of(Collective::all_reduce, data, data, data.size()), rank.stream));
  machine.failed() = true;
  rank.driver->finish(rank.stream);
  EXPECT_FALSE(rank.copies->enqueue(call_of(Collective::all_reduce, data, data, 1), rank.stream));
}

/// Whatever command the driver refuses: an error, and nothing that waits.
TEST(StagedAbort, ADriverThatFailsHarmsNobody) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  for (int commands = 1; commands < 60; ++commands) {
    Machine machine(2, 4 << 20);
    Bytes data(1 << 20);
    Rank rank(machine, 0, small_options(), {.seed = 1});
    rank.driver->fail_after(commands);
    const Status done = rank.copies->enqueue(call_of(Collective::all_reduce, data, data, data.size()), rank.stream);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::cuda_error);
    const Status next = rank.copies->enqueue(call_of(Collective::all_reduce, data, data, 1), rank.stream);
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().code, Code::aborted);
    rank.driver->finish(rank.stream);
  }
}

TEST(StagedAbort, OpeningFailsCleanly) {
  Machine machine(2, 4 << 20);
  for (int commands = 1; commands <= 5; ++commands) {
    auto driver = std::make_unique<FakeStreams>(FakeStreams::Options{});
    driver->fail_after(commands);
    EXPECT_FALSE(StagedCopies::open(machine.setup(0, small_options(), std::move(driver))));
  }
  const auto open = [&](std::uint32_t rank, const staged::StagedOptions& options) {
    return StagedCopies::open(machine.setup(rank, options, std::make_unique<FakeStreams>(FakeStreams::Options{})));
  };
  EXPECT_TRUE(open(0, small_options(2)));
  const auto other = open(1, small_options(3));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::mismatch);
  EXPECT_EQ(open(2, small_options()).error().code, Code::invalid_argument);
  EXPECT_EQ(open(1, small_options(0)).error().code, Code::invalid_argument);
}

TEST(StagedAbort, WhatIsNotSupportedIsRefusedAndChangesNothing) {
  Machine machine(2, 4 << 20);
  as_threads(2, [&](std::uint32_t number) {
    Bytes data(1000, std::byte{3});
    Rank rank(machine, number, small_options(), {});
    for (const StagedCall& call :
         {call_of(Collective::barrier, data, data, 1), call_of(Collective::send_recv, data, data, 1),
          call_of(Collective::all_reduce, data, data, 0)}) {
      EXPECT_FALSE(rank.copies->supports(call));
      const Status refused = rank.copies->enqueue(call, rank.stream);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::unsupported);
    }
    ASSERT_TRUE(rank.copies->enqueue(call_of(Collective::all_reduce, data, data, data.size()), rank.stream));
    rank.driver->finish(rank.stream);
    EXPECT_EQ(data, Bytes(1000, std::byte{6}));
  });
}

}  // namespace
}  // namespace strait::testing
