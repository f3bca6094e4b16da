// The first error of a communicator, whichever rank raises it and when.
#include "calls/watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "calls/call.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

/// A transport that carries nothing, and reports one posted call at most.
class NoTransport final : public Transport {
 public:
  explicit NoTransport(std::uint32_t ranks) : controls(ranks) {}
  std::string_view name() const override { return "none"; }
  std::size_t slot_bytes() const override { return 0; }
  bool has_peer_memory() const override { return false; }
  bool has_multicast() const override { return false; }
  Control& control() override { return words; }
  std::vector<RankControl*> rank_controls() override {
    std::vector<RankControl*> all;
    for (RankControl& each : controls) all.push_back(&each);
    return all;
  }
  Result<SendLink*> open_send(const LinkEnd&) override { return fail(Code::unsupported, ""); }
  Result<ReceiveLink*> open_receive(const LinkEnd&) override { return fail(Code::unsupported, ""); }
  Result<SignalSender*> open_signal(const SignalEnd&) override { return fail(Code::unsupported, ""); }
  Result<SignalWaiter*> open_wait(const SignalEnd&) override { return fail(Code::unsupported, ""); }
  void post_call(std::uint64_t, const CallSignature&, const void*, void*) override {}
  std::optional<PeerCall> peer_call(std::uint64_t, std::uint32_t) const override { return posted; }
  bool has_peer_calls(std::uint64_t) override { return false; }
  bool has_died(std::uint32_t rank) const override { return dead == rank; }
  std::string cause_of_death(std::uint32_t) const override { return "which is dead"; }
  std::optional<std::uint32_t> dead;
  std::optional<PeerCall> posted;
  Control words;
  std::vector<RankControl> controls;
};

/// Ranks that share their control words.
struct Ranks {
  explicit Ranks(std::uint32_t count, std::int64_t timeout_ms = 0) : transport(count) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      Watch::Peers peers;
      peers.rank = rank;
      peers.timeout_ms = timeout_ms;
      for (std::uint32_t other = 0; other < count; ++other) peers.names.push_back("rank " + std::to_string(other));
      watches.push_back(std::make_unique<Watch>(transport, std::move(peers)));
    }
  }
  std::string told(std::uint32_t rank) const { return watches[rank]->sticky().error().message; }
  NoTransport transport;
  Control& control = transport.words;
  std::vector<RankControl>& controls = transport.controls;
  std::vector<std::unique_ptr<Watch>> watches;
};

/// A rank that stood still may continue at any time; the error that others have reported by then stays.
TEST(FirstError, StaysWhateverARankThatStoodStillWritesLater) {
  Ranks ranks(3);
  ranks.controls[0].raised.state.store(1);  // rank 0 is about to write its error, and stops
  const Stopwatch watch;
  EXPECT_EQ(ranks.watches[1]->raise({Code::timeout, "of rank 1"}).message, "of rank 1");
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5)) << "it need not wait for that";
  EXPECT_EQ(ranks.told(2), "of rank 1");
  write_error(ranks.control, ranks.controls[0], 0, static_cast<std::uint32_t>(Code::aborted), "of rank 0");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.told(rank), "of rank 1");
  EXPECT_EQ(ranks.watches[0]->raise({Code::aborted, "once more"}).message, "of rank 1");
}

/// Two threads of each rank raise errors at the same time.
TEST(FirstError, IsTheSameForAllWhoRaiseOneAtATime) {
  for (int round = 0; round < 200; ++round) {
    Ranks ranks(3);
    std::array<std::string, 6> heard;
    {
      std::barrier together(6);
      std::vector<std::jthread> threads;
      for (std::uint32_t i = 0; i < 6; ++i)
        threads.emplace_back([&, i] {
          together.arrive_and_wait();
          heard[i] = ranks.watches[i % 3]->raise({Code::timeout, "of thread " + std::to_string(i)}).message;
        });
    }
    for (const std::string& each : heard) EXPECT_EQ(each, ranks.told(0));
  }
}

/// Has rank 0 wait for rank 1, which posts a differing call `late` after it has begun to; returns how the wait ends.
Status wait_for_one_that_differs(Ranks& ranks, const Watch::Waiting& waiting, std::chrono::milliseconds late) {
  Watch::Backoff backoff;
  Status status;
  const Stopwatch watch;
  while (status && watch.elapsed() < std::chrono::seconds(10)) {
    status = ranks.watches[0]->pause(backoff, waiting);
    if (watch.elapsed() > late) ranks.transport.posted = PeerCall{{1, 1}};
  }
  return status;
}

/// A slow rank may make its differing call after this rank has begun to look for differences, and may not wait for any
/// rank in it.
TEST(CallsThatDiffer, AreSeenAlsoWhereOneComesLater) {
  for (const auto late : {std::chrono::milliseconds(300), std::chrono::milliseconds(1500)}) {
    Ranks ranks(2);
    Watch::Waiting waiting;
    waiting.sequence = 1;
    waiting.awaited_ranks = [] { return std::vector<std::uint32_t>{1}; };
    const Status status = wait_for_one_that_differs(ranks, waiting, late);
    ASSERT_FALSE(status) << late.count() << " ms";
    EXPECT_EQ(status.error().code, Code::mismatch);
  }
}

/// This rank's collective completed without hearing from rank 1, and rank 1 may never send the message that it waits
/// for now.
TEST(CallsThatDiffer, AreSeenAlsoByOneThatWaitsForAMessage) {
  Ranks ranks(2);
  write_call(ranks.controls[0], 1, {});
  Watch::Waiting waiting;
  waiting.awaited_ranks = [] { return std::vector<std::uint32_t>{1}; };
  const Status status = wait_for_one_that_differs(ranks, waiting, std::chrono::milliseconds(0));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::mismatch);
}

/// The process was stopped until long after the deadline; what it waits for may have come meanwhile.
TEST(Deadline, LeavesAMomentForWhatCameWhileThisRankWasStopped) {
  Ranks ranks(2, 500);
  Watch::Waiting waiting;
  waiting.operation_began = std::chrono::steady_clock::now();
  waiting.awaited_ranks = [] { return std::vector<std::uint32_t>{1}; };
  Watch::Backoff backoff;
  const Stopwatch watch;
  while (watch.elapsed() < std::chrono::milliseconds(50)) ASSERT_TRUE(ranks.watches[0]->pause(backoff, waiting));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // stopped
  EXPECT_TRUE(ranks.watches[0]->pause(backoff, waiting)) << "the operation has not been tried again";
  Status status;
  for (const Stopwatch moment; status && moment.elapsed() < std::chrono::seconds(10);) {
    backoff = {};  // the operation advances, and is still not done
    for (int i = 0; status && i < 10'000; ++i) status = ranks.watches[0]->pause(backoff, waiting);
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::timeout);
}

/// Four ranks in collective 5, in which rank 0 waits for rank 1 until its deadline.
struct InACollective : Ranks {
  static constexpr std::uint64_t sequence = 5;
  /// `callers`: the ranks that have made the call.
  explicit InACollective(std::initializer_list<std::uint32_t> callers = {0, 1, 2, 3}, std::int64_t timeout_ms = 20)
      : Ranks(4, timeout_ms) {
    for (const std::uint32_t rank : callers) write_call(controls[rank], sequence, {});
  }
  void finish(std::uint32_t rank) { controls[rank].calls[sequence % posted_calls].finished_ticks.store(1); }
  void note_wait(std::uint32_t rank, std::uint32_t awaited) { controls[rank].awaited.store(awaited + 1); }
  std::string error_at_deadline(const CallSignature& signature = {}) {
    Watch::Waiting waiting;
    waiting.signature = signature;
    waiting.sequence = sequence;
    waiting.operation_began = std::chrono::steady_clock::now();
    waiting.awaited_ranks = [] { return std::vector<std::uint32_t>{1}; };
    Watch::Backoff backoff;
    Status status;
    while (status) status = watches[0]->pause(backoff, waiting);
    return status.error().message;
  }
};

TEST(Blame, IsOnWhoHasNotMadeTheCall) {
  InACollective ranks({0, 1});
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("waiting for rank 2, rank 3, which have not made this call. "));
}

/// Rank 1, which waits for rank 3, brings what this rank needs; rank 2 only comes late.
TEST(Blame, WithARootBeginsWithThoseThatThisRankNeeds) {
  Call call;
  call.collective = Collective::broadcast;
  call.root = 3;
  InACollective ranks({0, 1});
  ranks.note_wait(1, 3);
  EXPECT_THAT(ranks.error_at_deadline(signature(call)),
              HasSubstr("waiting for rank 3, which has not made this call; nor has rank 2. "));
}

/// Other hosts' notes of whom they wait for are not seen here.
TEST(Blame, WithARootIsOnAllThatAreLateWhereItIsNotKnownWhoIsNeeded) {
  Call call;
  call.collective = Collective::reduce;
  InACollective ranks({0, 1});
  EXPECT_THAT(ranks.error_at_deadline(signature(call)),
              HasSubstr("waiting for rank 2, rank 3, which have not made this call. "));
}

TEST(Blame, IsOnWhomTheAwaitedRankWaitsFor) {
  InACollective ranks;
  ranks.note_wait(1, 2);
  ranks.note_wait(2, 3);
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("waiting for rank 3. Look"));
}

/// Rank 1 was stopped while it waited for rank 2, which has come since.
TEST(Blame, IsNotOnWhoIsDone) {
  InACollective ranks;
  ranks.note_wait(1, 2);
  ranks.finish(2);
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("waiting for rank 1. Look"));
}

TEST(Blame, IsOnWhoHasDiedWithoutTheCall) {
  InACollective ranks({0, 1, 2}, 10'000);
  ranks.transport.dead = 3;
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("needs rank 3, which is dead"));
}

/// Rank 3 has died so many calls later that its call has been overwritten.
TEST(Blame, IsNotOnWhoHasDiedLongAfterTheCall) {
  InACollective ranks({0, 1, 2}, 500);
  write_call(ranks.controls[3], InACollective::sequence + posted_calls, {});
  ranks.transport.dead = 3;
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("waiting for rank 1. Look"));
}

TEST(Blame, IsOnAllThatWaitForOneAnother) {
  InACollective ranks;
  ranks.note_wait(1, 2);
  ranks.note_wait(2, 3);
  ranks.note_wait(3, 2);
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("waiting for rank 2, rank 3. Look"));
}

TEST(Blame, IsNotOnOneself) {
  InACollective ranks;
  ranks.note_wait(1, 0);
  EXPECT_THAT(ranks.error_at_deadline(), HasSubstr("waiting for rank 1. Look"));
}

}  // namespace
}  // namespace strait::testing
