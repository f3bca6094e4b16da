// What ranks wait for: a rank that never calls is named, a failure ends every wait, and nothing is left waiting.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <optional>

#include "machine.hpp"
#include "standstill.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using copy_engine::CopyCall;
using copy_engine::StagedCopies;
using namespace std::chrono_literals;

/// What a running operation copies after a failure is undefined. Races there are not defects, and the thread sanitizer
/// would take minutes to report them.
#define STRAIT_SKIP_UNDER_THREAD_SANITIZER() \
  if (one_view) GTEST_SKIP() << "copies race after a failure"

constexpr Collective collectives[] = {Collective::all_gather, Collective::all_to_all, Collective::broadcast,
                                      Collective::gather, Collective::scatter};

CopyCall call_of(Collective collective, Bytes& send, Bytes& receive, std::size_t count, std::uint32_t root = 0) {
  return {.collective = collective,
          .type = DataType::int8,
          .root = root,
          .count = count,
          .send = send.data(),
          .receive = receive.data()};
}

/// Rank 1 never calls. All others name it, and their queues of operations end once the communicator has failed.
void expect_missing_rank_is_named(Collective collective, std::uint32_t root, bool one_queue) {
  constexpr std::uint32_t ranks = 4, missing = 1;
  constexpr std::size_t count = 300'000;
  Machine machine(ranks, 6 << 20);
  std::barrier enqueued(ranks), looked(ranks);
  as_threads(ranks, [&](std::uint32_t number) {
    Bytes send(ranks * count), receive(ranks * count);
    Rank rank(machine, number, small_options(), {.seed = number, .one_queue = one_queue});
    for (int i = 0; i < 3 && number != missing; ++i)
      EXPECT_TRUE(rank.copies->enqueue(call_of(collective, send, receive, count, root), rank.stream));
    enqueued.arrive_and_wait();
    if (number == missing) {
      EXPECT_FALSE(rank.copies->wait());
    } else {
      const auto wait = await_standstill(*rank.copies, missing);
      EXPECT_TRUE(wait && wait->duration >= 30ms);
      if (wait) {
        EXPECT_EQ(wait->rank, missing) << "as rank " << number << " sees it";
      }
      EXPECT_FALSE(rank.driver->is_idle(rank.stream));
    }
    looked.arrive_and_wait();
    machine.failed() = true;
    rank.drain();
  });
}

TEST(StagedAbort, ARankThatNeverComesIsNamed) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  for (const Collective collective : collectives)
    for (const std::uint32_t root : {1u, 2u})
      for (const bool one_queue : {false, true}) {
        SCOPED_TRACE(std::string(name(collective)) + " root " + std::to_string(root) +
                     (one_queue ? ", one queue" : ""));
        expect_missing_rank_is_named(collective, root, one_queue);
      }
}

/// A call that is enqueued behind unfinished work of the user's stream is not reported as a wait for a rank.
TEST(StagedAbort, TheUsersOwnWorkIsNoWait) {
  Machine machine(2, 4 << 20);
  Bytes data(200'000), other(200'000);
  Rank rank(machine, 0, small_options(), {}), peer(machine, 1, small_options(), {});
  std::atomic<bool> goes_on = false;
  rank.driver->run(rank.stream, [&] { goes_on.wait(false); });
  ASSERT_TRUE(rank.copies->enqueue(call_of(Collective::all_gather, data, data, 100'000), rank.stream));
  for (int look = 0; look < 20; ++look) {
    EXPECT_FALSE(rank.copies->wait());
    std::this_thread::sleep_for(1ms);
  }
  goes_on = true;
  goes_on.notify_all();
  const auto wait = await_standstill(*rank.copies);
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->rank, 1u);
  ASSERT_TRUE(peer.copies->enqueue(call_of(Collective::all_gather, other, other, 100'000), peer.stream));
  rank.driver->finish(rank.stream);
  peer.driver->finish(peer.stream);
  EXPECT_FALSE(rank.copies->wait());
}

/// A call may end and the next one begin between two looks (wait()) that both find a call running. The duration must
/// then start anew.
TEST(StagedAbort, ACallThatHasEndedBetweenTwoLooksIsProgress) {
  Machine machine(2, 4 << 20);
  Bytes data(200'000), other(200'000);
  Rank rank(machine, 0, small_options(), {.slow = false}), peer(machine, 1, small_options(), {.slow = false});
  const std::atomic_ref begun(
      *reinterpret_cast<std::uint32_t*>(machine.host() + rank.copies->windows().begun(rank.rank)));
  for (int call = 0; call < 4; ++call) {
    const std::uint32_t before = begun.load();
    ASSERT_TRUE(rank.copies->enqueue(call_of(Collective::all_gather, data, data, 100'000), rank.stream));
    while (begun.load() == before) std::this_thread::sleep_for(1ms);  // an earlier look would find no call running
    const auto first = rank.copies->wait();
    ASSERT_TRUE(first);
    EXPECT_LT(first->duration, 20ms) << call;
    const auto wait = await_standstill(*rank.copies);
    ASSERT_TRUE(wait);
    EXPECT_GE(wait->duration, 30ms) << call;
    ASSERT_TRUE(peer.copies->enqueue(call_of(Collective::all_gather, other, other, 100'000), peer.stream));
    rank.driver->finish(rank.stream);
    peer.driver->finish(peer.stream);
  }
}

TEST(StagedAbort, AllRanksEndWhileChunksAreUnderWay) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  for (int attempt = 0; attempt < 12; ++attempt) {
    const Collective collective = collectives[attempt % std::size(collectives)];
    SCOPED_TRACE(name(collective));
    Machine machine(4, 6 << 20);
    as_threads(4, [&](std::uint32_t number) {
      Bytes send(4 << 20), receive(4 << 20);
      Rank rank(machine, number, small_options(), {.seed = number, .one_queue = attempt % 2 == 1});
      // Some ranks get further than others before the failure.
      for (std::uint32_t i = 0; i < 2 + number; ++i)
        ASSERT_TRUE(rank.copies->enqueue(call_of(collective, send, receive, 1 << 20), rank.stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(attempt + number));
      if (number == 2) machine.failed() = true;
      // The destructor ends what still runs, while the buffers still exist.
      const auto began = std::chrono::steady_clock::now();
      rank.copies.reset();
      EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
    });
  }
}

/// Whichever command the driver refuses, enqueue() returns an error, and nothing waits once the communicator has
/// failed.
TEST(StagedAbort, ADriverThatFailsHarmsNobody) {
  STRAIT_SKIP_UNDER_THREAD_SANITIZER();
  for (int commands = 1; commands < 60; ++commands) {
    Machine machine(2, 4 << 20);
    Bytes send(1 << 20), receive(2 << 20);
    Rank rank(machine, 0, small_options(), {.seed = 1});
    rank.driver->fail_after(commands);
    const Status done = rank.copies->enqueue(call_of(Collective::all_gather, send, receive, send.size()), rank.stream);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::cuda_error);
    machine.failed() = true;
    rank.drain();
  }
}

TEST(StagedAbort, OpeningFailsCleanly) {
  Machine machine(2, 4 << 20);
  for (int commands = 1; commands <= 5; ++commands) {
    auto driver = std::make_unique<FakeStreams>(FakeStreams::Options{});
    driver->fail_after(commands);
    EXPECT_FALSE(StagedCopies::open(machine.setup(0, small_options(), std::move(driver))));
  }
  const auto open = [&](std::uint32_t rank, const copy_engine::StagedOptions& options) {
    return StagedCopies::open(machine.setup(rank, options, std::make_unique<FakeStreams>(FakeStreams::Options{})));
  };
  EXPECT_TRUE(open(0, small_options(4)));
  const auto other = open(1, small_options(3));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::mismatch);
  EXPECT_EQ(open(2, small_options()).error().code, Code::invalid_argument);
  EXPECT_EQ(open(1, small_options(0)).error().code, Code::invalid_argument);
  copy_engine::StagedOptions empty_chunks = small_options();
  empty_chunks.least_chunk_bytes = 0;
  EXPECT_EQ(open(1, empty_chunks).error().code, Code::invalid_argument);
}

TEST(StagedAbort, WhatIsNotSupportedIsRefusedAndChangesNothing) {
  constexpr std::size_t most = StagedCopies::most_rounds * (64 << 10);
  Machine machine(2, 4 << 20);
  as_threads(2, [&](std::uint32_t number) {
    Bytes send(1000, std::byte(3 + number)), receive(2000);
    Rank rank(machine, number, small_options(), {});
    for (const CopyCall& call :
         {call_of(Collective::barrier, send, receive, 1), call_of(Collective::send_recv, send, receive, 1),
          call_of(Collective::all_reduce, send, receive, 1), call_of(Collective::reduce_scatter, send, receive, 1),
          call_of(Collective::reduce, send, receive, 1), call_of(Collective::all_gather, send, receive, 0),
          call_of(Collective::all_gather, send, receive, most + 1)}) {
      EXPECT_FALSE(rank.copies->supports(call));
      const Status refused = rank.copies->enqueue(call, rank.stream);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::unsupported);
    }
    EXPECT_TRUE(rank.copies->supports(call_of(Collective::all_gather, send, receive, most)));
    ASSERT_TRUE(rank.copies->enqueue(call_of(Collective::all_gather, send, receive, send.size()), rank.stream));
    rank.driver->finish(rank.stream);
    Bytes expected(1000, std::byte{3});
    expected.resize(2000, std::byte{4});
    EXPECT_EQ(receive, expected);
  });
}

}  // namespace
}  // namespace strait::testing
