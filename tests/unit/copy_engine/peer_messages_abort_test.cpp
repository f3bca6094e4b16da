// What messages that are copied into the memory of peers wait for: ranks that never post them, that post different
// ones, and that stop anywhere; and which words they leave behind.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>

#include "late.hpp"
#include "message_groups.hpp"
#include "standstill.hpp"

namespace strait::testing {
namespace {

using copy_engine::MemoryOperation;
using copy_engine::MessageWords;
using namespace std::chrono_literals;

/// Rank 1 never posts its messages. The ranks that send to it or receive from it name it. Rank 3, which does not, waits
/// for rank 0's second group. All end once the communicator has failed.
TEST(PeerMessagesAbort, ARankThatNeverComesIsNamed) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  constexpr std::uint32_t ranks = 4, missing = 1;
  const Messages all{{0, 1, 100'000}, {0, 3, 100'000}, {1, 2, 100'000}, {3, 0, 100'000}, {2, 1, 10}};
  for (const bool one_queue : {false, true}) {
    Peers peers(ranks);
    std::barrier looked(ranks - 1);
    as_threads(ranks, [&](std::uint32_t number) {
      if (number == missing) return;
      PeerRank rank(peers, number, {.seed = number, .one_queue = one_queue});
      OwnMessages own(all, number, 1), next(all, number, 2);
      ASSERT_TRUE(rank.enqueue(own.ends()));
      ASSERT_TRUE(rank.enqueue(next.ends()));
      const std::uint32_t waits_for = number == 3 ? 0 : missing;  // rank 0 never gets to its second group
      const auto wait = await_standstill(*rank.messages, waits_for);
      ASSERT_TRUE(wait);
      EXPECT_GE(wait->duration, 30ms);
      EXPECT_EQ(wait->rank, waits_for) << number;
      EXPECT_FALSE(rank.driver->is_idle(rank.stream));
      looked.arrive_and_wait();
      peers.fail();
      rank.drain();
    });
  }
}

/// A send and a receive of different lengths never meet, and nothing is written.
TEST(PeerMessagesAbort, MessagesThatDifferDoNotMeet) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  Peers peers(2);
  std::barrier looked(2);
  as_threads(2, [&](std::uint32_t number) {
    const Messages own_view{{0, 1, number == 0 ? 50'000u : 50'001u}};
    PeerRank rank(peers, number, {.seed = number});
    OwnMessages own(own_view, number, 1);
    ASSERT_TRUE(rank.enqueue(own.ends()));
    const auto wait = await_standstill(*rank.messages, 1 - number);
    ASSERT_TRUE(wait);
    EXPECT_EQ(wait->rank, 1 - number);
    if (number == 1) {
      EXPECT_EQ(std::to_integer<int>(*own.ends().front().data), 0xa5);
    }
    looked.arrive_and_wait();
    peers.fail();
    rank.drain();
  });
}

/// Stops rank 1 after that many memory operations; returns whether it has so many. All streams must end once the
/// communicator has failed.
bool stops_at(int operation, bool one_queue) {
  constexpr std::uint32_t ranks = 3;
  const Messages all{{0, 1, 50'000}, {1, 0, 9000}, {1, 2, 50'000}, {2, 0, 40'000}, {1, 1, 5}, {1, 0, 30'000}};
  Peers peers(ranks);
  Stop stop(operation);
  std::atomic<std::uint32_t> ended = 0;
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .one_queue = one_queue, .slow = false});
    if (number == 1) rank.driver->set_hook([&](const MemoryOperation&) { stop.pass(); });
    OwnMessages own(all, number, 1), next(all, number, 2);
    ASSERT_TRUE(rank.enqueue(own.ends()));
    ASSERT_TRUE(rank.enqueue(next.ends()));
    rank.end_at(number == 1 ? &stop : nullptr);
    ++ended;
  });
  EXPECT_EQ(ended, ranks);
  return stop.is_reached();
}

TEST(PeerMessagesAbort, AFailureEndsEveryWait) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  for (const bool one_queue : {false, true}) {
    int operation = 0;
    while (stops_at(operation, one_queue) && !::testing::Test::HasFailure()) operation += one_queue ? 7 : 4;
    EXPECT_GT(operation, 40);
  }
}

/// The destructor ends what still runs, while the buffers still exist.
TEST(PeerMessagesAbort, EndWithTheirObject) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  Peers peers(2);
  const Messages all{{0, 1, 100'000}, {1, 0, 100'000}};
  OwnMessages own(all, 0, 1);
  PeerRank rank(peers, 0, {});
  ASSERT_TRUE(rank.enqueue(own.ends()));
  peers.fail();
  const auto began = std::chrono::steady_clock::now();
  rank.messages.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

/// Whichever command the driver refuses, enqueue() returns an error, and nothing waits once the communicator has
/// failed.
TEST(PeerMessagesAbort, ADriverThatFailsHarmsNobody) {
  const Messages all{{0, 1, 40'000}, {1, 0, 40'000}, {0, 0, 10}};
  for (int commands = 1; commands < 50; commands += 2) {
    Peers peers(2);
    OwnMessages own(all, 0, 1);
    PeerRank rank(peers, 0, {.seed = 1});
    rank.driver->fail_after(commands);
    const Status done = rank.enqueue(own.ends());
    ASSERT_FALSE(done) << commands;
    EXPECT_EQ(done.error().code, Code::cuda_error);
    peers.fail();
    rank.messages.reset();
    rank.copies.reset();
  }
}

/// Messages may end and begin between two looks (wait()) that find the same state. The duration must then start anew.
TEST(PeerMessagesAbort, AMessageThatHasEndedBetweenTwoLooksIsProgress) {
  Peers peers(2);
  const Messages all{{0, 1, 100}};
  OwnMessages own(all, 0, 1), theirs(all, 1, 1);
  PeerRank rank(peers, 0, {.slow = false}), peer(peers, 1, {.slow = false});
  const std::atomic_ref sending(
      *reinterpret_cast<std::uint32_t*>(peers.machine.host() + MessageWords{2}.sending(0, 1, 0)));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rank.enqueue(own.ends()));
    while (sending.load() == 0) std::this_thread::sleep_for(1ms);  // an earlier look would find no message
    EXPECT_LT(rank.messages->wait()->duration, 20ms) << i;
    std::this_thread::sleep_for(40ms);
    EXPECT_GE(rank.messages->wait()->duration, 40ms) << i;
    ASSERT_TRUE(peer.enqueue(theirs.ends()));
    rank.driver->finish(rank.stream);
    peer.driver->finish(peer.stream);
  }
}

/// Between messages every word is 0, whichever write is late.
TEST(PeerMessagesAbort, LeaveAllWordsClear) {
  constexpr std::uint32_t ranks = 3;
  const Bytes zeros(MessageWords{ranks}.size_bytes());
  Peers peers(ranks);
  std::barrier everybody(ranks);
  Random random(3);
  std::vector<Messages> groups;
  for (int i = 0; i < 12; ++i) groups.push_back(random_messages(random, ranks, message_lengths()));
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.slow = false});
    rank.driver->set_hook(stragglers(number));
    for (const Messages& group : groups) {
      OwnMessages own(group, number, 1);
      ASSERT_TRUE(rank.enqueue(own.ends()));
      rank.driver->finish(rank.stream);
      own.check();
      everybody.arrive_and_wait();
      if (number == 0) {
        EXPECT_EQ(std::memcmp(peers.machine.host(), zeros.data(), zeros.size()), 0);
      }
      everybody.arrive_and_wait();
    }
  });
}

}  // namespace
}  // namespace strait::testing
