#include <atomic>
#include <barrier>
#include <chrono>

#include "ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RankCounts : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Channel, RankCounts, ::testing::Values(1, 2, 3, 4, 7, 16, 64));

TEST_P(RankCounts, EveryRankGetsEveryRanksBytes) {
  const int n = GetParam();
  with_channels(n, [&](Channel& channel) {
    for (int round = 0; round < 3; ++round) {
      // Lengths differ by rank, and some are 0.
      std::string mine(static_cast<std::size_t>(channel.rank() % 5),
                       static_cast<char>('a' + (channel.rank() + round) % 26));
      auto all = channel.all_gather(as_byte_span(mine), within_ms(20'000));
      ASSERT_TRUE(all) << all.error().message;
      ASSERT_EQ(all->size(), static_cast<std::size_t>(n));
      for (int r = 0; r < n; ++r)
        EXPECT_EQ(text_of((*all)[static_cast<std::size_t>(r)]),
                  std::string(static_cast<std::size_t>(r % 5), static_cast<char>('a' + (r + round) % 26)));
    }
  });
}

TEST_P(RankCounts, BroadcastsFromEveryRank) {
  const int n = GetParam();
  with_channels(n, [&](Channel& channel) {
    for (int root = 0; root < n; ++root) {
      std::string mine = "from " + std::to_string(channel.rank());
      auto data = channel.broadcast(as_byte_span(mine), root, within_ms(20'000));
      ASSERT_TRUE(data) << data.error().message;
      EXPECT_EQ(text_of(*data), "from " + std::to_string(root));
    }
  });
}

TEST_P(RankCounts, NobodyPassesABarrierEarly) {
  const int n = GetParam();
  std::atomic<int> arrived{0};
  with_channels(n, [&](Channel& channel) {
    for (int round = 1; round <= 3; ++round) {
      arrived.fetch_add(1);
      ASSERT_TRUE(channel.barrier(within_ms(20'000)));
      EXPECT_GE(arrived.load(), n * round);
    }
  });
}

TEST_P(RankCounts, EveryRankKnowsAllPeers) {
  const int n = GetParam();
  with_channels(n, [&](Channel& channel) {
    ASSERT_EQ(channel.peers().size(), static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
      const PeerInfo& peer = channel.peers()[static_cast<std::size_t>(r)];
      EXPECT_EQ(peer.rank, r);
      EXPECT_EQ(peer.pid, ::getpid());
      EXPECT_EQ(peer.uid, ::geteuid());
      EXPECT_NE(peer.network_namespace, 0u);
      EXPECT_TRUE(peer.same_process(channel.self()));
    }
  });
}

TEST(Channel, CarriesMegabytes) {
  with_channels(4, [&](Channel& channel) {
    Bytes mine(3 << 20, static_cast<std::byte>(channel.rank() + 1));
    auto all = channel.all_gather(mine, within_ms(20'000));
    ASSERT_TRUE(all) << all.error().message;
    for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ((*all)[r], Bytes(3 << 20, static_cast<std::byte>(r + 1)));
  });
}

TEST(Channel, RefusesMoreThanAFrameHoldsAndStaysUsable) {
  with_channels(2, [&](Channel& channel) {
    Bytes mine(40 << 20);
    EXPECT_THAT(channel.all_gather(mine, within_ms(1000)), FailsWith(Code::invalid_argument, HasSubstr("64 MiB")));
    EXPECT_THAT(channel.broadcast({}, 2, within_ms(1000)), FailsWith(Code::invalid_argument, HasSubstr("from 0 to 1")));
    EXPECT_TRUE(channel.barrier(within_ms(20'000)));
  });
}

TEST(Channel, ABroadcastersLeadIsHarmless) {
  constexpr int rounds = 200;
  with_channels(5, [&](Channel& channel) {
    for (int round = 0; round < rounds; ++round) {
      auto data = channel.broadcast(as_byte_span(std::to_string(round)), 3, within_ms(20'000));
      ASSERT_TRUE(data) << data.error().message;
      ASSERT_EQ(text_of(*data), std::to_string(round));
    }
  });
}

TEST(Channel, DifferentOperationsAreAMismatchOnAllRanks) {
  with_channels(4, [&](Channel& channel) {
    Wait wait = within_ms(20'000);
    Status status = channel.rank() == 3 ? channel.barrier(wait) : channel.all_gather({}, wait).map([](const auto&) {});
    EXPECT_THAT(status, FailsWith(Code::mismatch, AllOf(HasSubstr("barrier"), HasSubstr("all-gather"))));
    EXPECT_THAT(channel.barrier(wait), FailsWith(Code::mismatch, HasSubstr("barrier"))) << "the error is sticky";
  });
}

TEST(Channel, ADeadlineNamesTheMissingRankOnAllRanks) {
  std::atomic<int> failed{0};
  Deadline deadline = Deadline::never();  // one for all, however late the last of them comes to run
  std::barrier together(6, [&]() noexcept { deadline = Deadline::after_ms(1000); });
  with_channels(7, [&](Channel& channel) {
    if (channel.rank() == 5) {
      while (failed.load() < 6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    channel.set_call("split of the communicator");
    together.arrive_and_wait();
    EXPECT_THAT(channel.barrier({deadline, nullptr}),
                FailsWith(Code::timeout, AllOf(HasSubstr("the split of the communicator did not finish"),
                                               HasSubstr("rank 5 (host"), Not(HasSubstr("barrier")))));
    failed.fetch_add(1);
  });
}

/// What ranks 3 and 4 have sent waits at rank 1.
TEST(Channel, ADeadlineDoesNotAccuseRanksBehindTheMissingOne) {
  std::atomic<int> failed{0};
  with_channels(5, [&](Channel& channel) {
    if (channel.rank() == 1) {
      while (failed.load() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const Wait wait = within_ms(channel.rank() == 2 ? 20'000 : 200);
    const auto named = channel.rank() > 2 ? AllOf(HasSubstr("rank 1 (host"), HasSubstr(") or a rank behind it"))
                                          : AllOf(HasSubstr("nothing came from rank 1 (host"),
                                                  HasSubstr("and so not from ranks 3, 4 behind, which may be well"));
    EXPECT_THAT(channel.all_gather({}, wait),
                FailsWith(Code::timeout, AllOf(named, Not(HasSubstr("all-gather")), Not(HasSubstr("out-of-band")))));
    failed.fetch_add(1);
  });
}

/// A rank that is not at the top of the tree hears of its neighbours only.
TEST(Channel, ADeadlineOfARankThatCannotKnowSaysSo) {
  std::atomic<int> failed{0};
  with_channels(3, [&](Channel& channel) {
    if (channel.rank() == 1) {
      while (failed.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    EXPECT_THAT(channel.barrier(within_ms(channel.rank() == 2 ? 100 : 20'000)),
                FailsWith(Code::timeout,
                          AllOf(HasSubstr("nothing came from rank 0 (host"), HasSubstr(") or a rank behind it"))));
    failed.fetch_add(1);
  });
}

TEST(Channel, ADepartedRankIsNamedOnAllRanks) {
  for (int leaver : {0, 1, 6}) {
    with_channels(7, [&](Channel& channel) {
      if (channel.rank() == leaver) return;
      EXPECT_THAT(channel.barrier(within_ms(20'000)),
                  FailsWith(Code::remote_error,
                            AllOf(HasSubstr("rank " + std::to_string(leaver) + " (host"), HasSubstr("has left"))));
    });
  }
}

TEST(Channel, LeavingAfterTheLastOperationHurtsNobody) {
  for (int round = 0; round < 10; ++round)
    with_channels(6, [&](Channel& channel) { EXPECT_TRUE(channel.barrier(within_ms(20'000))); });
}

TEST(Channel, AbortEndsTheWaitAndTellsTheOthers) {
  std::atomic<bool> abort{false};
  with_channels(3, [&](Channel& channel) {
    if (channel.rank() == 0) {  // makes no call of its own: the watchdog's check passes the news on
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      const Stopwatch watch;
      abort.store(true);
      while (channel.check()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
      EXPECT_THAT(channel.error(), FailsWith(Code::aborted, HasSubstr("rank 2")));
      return;
    }
    Wait wait{Deadline::after_ms(20'000), channel.rank() == 2 ? &abort : nullptr};
    EXPECT_THAT(channel.barrier(wait), FailsWith(Code::aborted, HasSubstr("rank 2 (host")));
  });
}

TEST(Channel, AnnouncedErrorsReachAllRanks) {
  with_channels(6, [&](Channel& channel) {
    Error error{Code::aborted, "rank 4 was aborted by its user"};
    if (channel.rank() == 4) {
      channel.announce(error);
      EXPECT_THAT(channel.barrier(within_ms(1000)), FailsWith(Code::aborted, error.message));
      return;
    }
    EXPECT_THAT(channel.barrier(within_ms(20'000)), FailsWith(Code::aborted, error.message));
  });
}

TEST(Channel, AnAnnouncementEndsAnOperationUnderWay) {
  std::atomic<bool> done{false};
  with_channels(2, [&](Channel& channel) {
    if (channel.rank() == 1) {
      while (!done.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    std::thread watchdog([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      channel.announce({Code::aborted, "from the watchdog"});
    });
    EXPECT_THAT(channel.barrier(within_ms(20'000)), FailsWith(Code::aborted, "from the watchdog"));
    watchdog.join();
    done.store(true);
  });
}

/// Whatever moment it comes at: also between two operations of a rank, or at the very end of one.
TEST(Channel, NoAnnouncementIsLost) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> begun{false}, done{false};
    with_channels(2, [&](Channel& channel) {
      if (channel.rank() == 0) {
        std::thread watchdog([&] {
          while (!begun.load()) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
          channel.announce({Code::aborted, "from the watchdog"});
        });
        begun.store(true);
        for (int i = 0; i < 5; ++i) (void)channel.barrier(within_ms(20'000));
        watchdog.join();
        while (!done.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // makes no further call
        return;
      }
      Status status;
      while (status) status = channel.barrier(within_ms(5000));
      EXPECT_THAT(status, FailsWith(Code::aborted, "from the watchdog"));
      done.store(true);
    });
  }
}

TEST(Channel, NewsThatARankHeedsEndsItsWaitAndTellsTheOthers) {
  std::atomic<bool> failed{false};
  with_channels(3, [&](Channel& channel) {
    const auto is_told = FailsWith(Code::timeout, "an operation passed its deadline");
    if (channel.rank() == 0) {  // in no operation
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      const Stopwatch watch;
      failed.store(true);
      while (channel.check()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
      EXPECT_THAT(channel.error(), is_told);
      return;
    }
    if (channel.rank() == 2)
      channel.set_error_source([&]() -> Status {
        return failed.load() ? fail(Code::timeout, "an operation passed its deadline") : Status();
      });
    EXPECT_THAT(channel.barrier(within_ms(20'000)), is_told);
  });
}

TEST(Channel, NewsEndsNoOperationForWhichAllIsThere) {
  std::atomic<bool> sent{false};
  with_channels(2, [&](Channel& channel) {
    if (channel.rank() == 1)
      while (!sent.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    channel.set_error_source([] { return Status(fail(Code::timeout, "news")); });
    const auto data = channel.broadcast(as_byte_span("all"), 0, within_ms(20'000));
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(text_of(*data), "all");
    sent.store(true);
    EXPECT_THAT(channel.check(), FailsWith(Code::timeout, "news"));
  });
}

TEST(Channel, AloneNeedsNoNetwork) {
  auto self = local_peer_info(0, environment_of({}));
  ASSERT_TRUE(self);
  auto channel = Channel::alone(*self);
  auto all = channel->all_gather(as_byte_span("x"), within_ms(100));
  ASSERT_TRUE(all);
  EXPECT_EQ(text_of(all->at(0)), "x");
  EXPECT_TRUE(channel->barrier(within_ms(100)));
  EXPECT_TRUE(channel->check());
}

}  // namespace
}  // namespace strait::testing
