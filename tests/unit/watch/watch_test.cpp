// The first error of a communicator, whichever rank raises it and when.
#include "calls/watch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

/// A transport that carries nothing, and reports one posted call at most.
class NoTransport final : public Transport {
 public:
  std::string_view name() const override { return "none"; }
  std::size_t slot_bytes() const override { return 0; }
  bool has_peer_memory() const override { return false; }
  bool has_multicast() const override { return false; }
  Result<SendLink*> open_send(const LinkEnd&) override { return fail(Code::unsupported, ""); }
  Result<ReceiveLink*> open_receive(const LinkEnd&) override { return fail(Code::unsupported, ""); }
  Result<SignalSender*> open_signal(const SignalEnd&) override { return fail(Code::unsupported, ""); }
  Result<SignalWaiter*> open_wait(const SignalEnd&) override { return fail(Code::unsupported, ""); }
  void post_call(std::uint64_t, const CallSignature&, const void*, void*) override {}
  std::optional<PeerCall> peer_call(std::uint64_t, std::uint32_t) const override { return posted; }
  bool has_peer_calls(std::uint64_t) override { return false; }
  std::optional<PeerCall> posted;
};

/// Ranks that share their control words.
struct Ranks {
  explicit Ranks(std::uint32_t count) : controls(count) {
    std::vector<RankControl*> all;
    for (RankControl& each : controls) all.push_back(&each);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      Watch::Peers peers;
      peers.rank = rank;
      for (std::uint32_t other = 0; other < count; ++other) peers.names.push_back("rank " + std::to_string(other));
      watches.push_back(std::make_unique<Watch>(control, all, transport, std::move(peers)));
    }
  }
  std::string told(std::uint32_t rank) const { return watches[rank]->sticky().error().message; }
  Control control;
  std::vector<RankControl> controls;
  NoTransport transport;
  std::vector<std::unique_ptr<Watch>> watches;
};

/// A rank that stood still may continue at any time; the error that others have reported by then stays.
TEST(FirstError, StaysWhateverARankThatStoodStillWritesLater) {
  Ranks ranks(3);
  ranks.controls[0].raised.state.store(1);  // rank 0 is about to write its error, and stops
  const Stopwatch watch;
  EXPECT_EQ(ranks.watches[1]->raise({Code::timeout, "of rank 1"}).message, "of rank 1");
  EXPECT_LT(watch.elapsed(), std::chrono::milliseconds(50)) << "it need not wait for that";
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

/// A slow rank may make its differing call after this rank has begun to look for differences, and may not wait for any
/// rank in it.
TEST(CallsThatDiffer, AreSeenAlsoWhereOneComesLater) {
  Ranks ranks(2);
  Watch::Waiting waiting;
  waiting.sequence = 1;
  waiting.awaited_ranks = [] { return std::vector<std::uint32_t>{1}; };
  Watch::Backoff backoff;
  Status status;
  const Stopwatch watch;
  while (status && watch.elapsed() < std::chrono::seconds(10)) {
    status = ranks.watches[0]->pause(backoff, waiting);
    if (watch.elapsed() > std::chrono::milliseconds(300)) ranks.transport.posted = PeerCall{{1, 1}};
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::mismatch);
}

}  // namespace
}  // namespace strait::testing
