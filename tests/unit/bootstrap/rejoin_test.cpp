// Ranks that go on without others, over what they knew of one another before.
#include <atomic>
#include <chrono>

#include "ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

JoinOptions options_within_ms(std::int64_t duration_ms) { return options_of(0, 1, duration_ms); }

std::string describe_own_process() {
  const std::string rank = "rank 0 ", whole = local_peer_info(0, environment_of({}))->describe();
  return whole.substr(rank.size());
}

/// The channels of ranks that have joined.
std::vector<std::unique_ptr<Channel>> join_ranks(int ranks) {
  std::vector<JoinOptions> options;
  for (int rank = 0; rank < ranks; ++rank) options.push_back(options_of(rank, ranks));
  std::vector<std::unique_ptr<Channel>> channels;
  for (Joined& joined : join_all(make_id(), options)) {
    EXPECT_TRUE(joined) << joined.error().message;
    channels.push_back(std::move(*joined));
  }
  return channels;
}

/// What comes of it on each of the ranks in `callers`, which all give the list that `list_of` says.
template <class ListOf>
std::vector<Joined> rejoin_on(const std::vector<std::unique_ptr<Channel>>& channels, const std::vector<int>& callers,
                              const ListOf& list_of, std::int64_t timeout_ms = 20'000) {
  std::vector<Joined> results(callers.size());
  on_ranks(static_cast<int>(callers.size()), [&](int i) {
    const int rank = callers[static_cast<std::size_t>(i)];
    results[static_cast<std::size_t>(i)] =
        rejoin(*channels[static_cast<std::size_t>(rank)], list_of(rank), options_within_ms(timeout_ms));
  });
  return results;
}

std::vector<Joined> rejoin_all(const std::vector<std::unique_ptr<Channel>>& channels,
                               const std::vector<int>& remaining) {
  return rejoin_on(channels, remaining, [&](int) { return remaining; });
}

/// Numbered by the order of `remaining`, they gather what each says.
void expect_together(const std::vector<Joined>& joined, const std::vector<int>& remaining) {
  on_ranks(static_cast<int>(joined.size()), [&](int i) {
    const Joined& own = joined[static_cast<std::size_t>(i)];
    ASSERT_TRUE(own) << own.error().message;
    EXPECT_EQ((*own)->rank(), i);
    EXPECT_EQ((*own)->ranks(), static_cast<int>(remaining.size()));
    const auto said = std::to_string(remaining[static_cast<std::size_t>(i)]);
    const auto all = (*own)->all_gather(bytes_of(said), within_ms(20'000));
    ASSERT_TRUE(all) << all.error().message;
    for (std::size_t other = 0; other < remaining.size(); ++other)
      EXPECT_EQ(text_of((*all)[other]), std::to_string(remaining[other]));
  });
}

TEST(Rejoin, AfterAFailureAndAgain) {
  const auto channels = join_ranks(4);
  channels[1]->announce({Code::remote_error, "rank 1 is ill"});
  for (const auto& remaining : {std::vector{0, 2, 3}, {2, 3}, {0, 2, 3}, {3}, {0, 1, 2, 3}})
    expect_together(rejoin_all(channels, remaining), remaining);
}

/// Rank 0 was the root of them all, and a parent in the tree.
TEST(Rejoin, WithoutTheFirstThatIsGone) {
  auto channels = join_ranks(3);
  channels[0].reset();
  expect_together(rejoin_all(channels, {1, 2}), {1, 2});
}

TEST(Rejoin, OfOnesThatHaveRejoined) {
  const auto channels = join_ranks(3);
  std::vector<std::unique_ptr<Channel>> fewer;
  for (Joined& joined : rejoin_all(channels, {0, 2})) fewer.push_back(std::move(*joined));
  expect_together(rejoin_all(fewer, {0, 1}), {0, 1});
  expect_together(rejoin_all(fewer, {1}), {1});
}

TEST(Rejoin, AloneNeedsNoNetwork) {
  const auto channel = Channel::alone(*local_peer_info(0, environment_of({})));
  const Joined joined = rejoin(*channel, {0}, options_within_ms(1000));
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE((*joined)->barrier(within_ms(1000)));
}

/// One that does not come is named by the deadline, and the rest may do without it at once: what still listens for the
/// first attempt does not take them for those that it waits for.
TEST(Rejoin, MayBeTriedAgainWithFewer) {
  const auto channels = join_ranks(4);
  const std::vector<int> hoped{0, 1, 2, 3}, remaining{0, 1, 2};
  for (const Joined& joined : rejoin_on(
           channels, remaining, [&](int) { return hoped; }, 2000))
    EXPECT_THAT(joined,
                FailsWith(Code::timeout, AllOf(HasSubstr("ranks 0-3 cannot go on"),
                                               HasSubstr("by the deadline: rank 3 " + describe_own_process()))));
  expect_together(rejoin_all(channels, remaining), remaining);
}

/// They keep their earlier numbers in messages: 2 is the second of those that go on.
TEST(Rejoin, WhoDoesNotComeIsNamedByItsEarlierNumber) {
  const auto channels = join_ranks(4);
  for (const Joined& joined : rejoin_on(
           channels, {0, 3},
           [](int) {
             return std::vector{0, 2, 3};
           },
           2000))
    EXPECT_THAT(joined,
                FailsWith(Code::timeout,
                          AllOf(HasSubstr("did not join by the deadline: rank 2 " + describe_own_process() + "."),
                                HasSubstr("must call straitCommShrink"), HasSubstr("the same list"),
                                Not(HasSubstr("firewall")), Not(HasSubstr("unique id")))));
}

/// Nobody comes to who waits for the one that has to begin.
TEST(Rejoin, NamesWhoHasToBegin) {
  const auto channels = join_ranks(3);
  const Stopwatch watch;
  for (const Joined& joined : rejoin_on(
           channels, {1, 2},
           [](int) {
             return std::vector{0, 1, 2};
           },
           300))
    EXPECT_THAT(joined,
                FailsWith(Code::timeout, AllOf(HasSubstr("which " + channels[0]->self().describe() + " has to begin"),
                                               HasSubstr("must call straitCommShrink"), Not(HasSubstr("(rank 0)")))));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

/// Its process is stopped: it has made the call, and so the others are not told that all must.
TEST(Rejoin, SaysThatTheOneThatHasBegunDoesNotAnswer) {
  const auto channels = join_ranks(2);
  const auto listener = listen_on(channels[0]->rejoin_socket());
  ASSERT_TRUE(listener);
  EXPECT_THAT(rejoin(*channels[1], {0, 1}, options_within_ms(300)),
              FailsWith(Code::timeout, AllOf(HasSubstr("did not answer by the deadline"),
                                             Not(HasSubstr("must call straitCommShrink")))));
}

/// Not for a rank fewer: by mistake.
TEST(Rejoin, ListsThatDifferAreToldToAll) {
  const auto channels = join_ranks(4);
  const auto list_of = [](int rank) { return rank == 2 ? std::vector{0, 2, 3} : std::vector{0, 1, 2}; };
  for (const Joined& joined : rejoin_on(channels, {0, 1, 2}, list_of))
    EXPECT_THAT(joined, FailsWith(Code::mismatch,
                                  AllOf(HasSubstr("the list of ranks that go on is \"0, 2, 3\" on rank 2 (host"),
                                        HasSubstr("and \"0-2\" on the one that it joins"))));
}

/// Where they differ is beyond what a message shows of them.
TEST(Rejoin, LongListsThatDifferAtTheirEndsAreToldToAll) {
  constexpr int ranks = 40;
  const auto channels = join_ranks(ranks);
  std::vector<int> callers;
  for (int rank = 0; rank < ranks; rank += 2)
    if (rank != 34 && rank != 36) callers.push_back(rank);
  const auto list_of = [&](int rank) {
    std::vector<int> list = callers;
    list.insert(list.end() - 1, rank == 38 ? 36 : 34);
    return list;
  };
  for (const Joined& joined : rejoin_on(channels, callers, list_of))
    EXPECT_THAT(joined, FailsWith(Code::mismatch, HasSubstr("more (digest")));
}

/// The same list again: what is left of the first attempt does not answer for the second, whoever comes first to it.
TEST(Rejoin, MayBeTriedAgainWithAll) {
  const auto channels = join_ranks(3);
  const std::vector<int> all{0, 1, 2};
  for (const Joined& joined : rejoin_on(
           channels, {0, 1}, [&](int) { return all; }, 2000))
    EXPECT_THAT(joined, FailsWith(Code::timeout, HasSubstr("by the deadline: rank 2 (host")));
  std::vector<Joined> joined(3);
  std::atomic<bool> has_been_told{false};
  on_ranks(3, [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    // Rank 0's next attempt ends what is left of the first one, which ends by itself after a second.
    for (const auto until = Deadline::after_ms(5000); rank == 0 && !has_been_told && !until.expired();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank == 2) {  // has not been told yet
      EXPECT_THAT(rejoin(*channels[place], all, options_within_ms(20'000)),
                  FailsWith(Code::timeout, HasSubstr(": rank 2 (host")));
      has_been_told = true;
    }
    joined[place] = rejoin(*channels[place], all, options_within_ms(20'000));
  });
  expect_together(joined, all);
}

/// The first of them still hopes for more than the others do: its attempt ends, and theirs waits for its next one.
TEST(Rejoin, WaitsForTheFirstToGiveUp) {
  const auto channels = join_ranks(4);
  std::vector<Joined> joined(3);
  on_ranks(3, [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    if (rank == 0) {
      EXPECT_THAT(rejoin(*channels[place], {0, 1, 2, 3}, options_within_ms(20'000)),
                  FailsWith(Code::mismatch, HasSubstr("\"0-2\" on rank")));
    }
    joined[place] = rejoin(*channels[place], {0, 1, 2}, options_within_ms(20'000));
  });
  expect_together(joined, {0, 1, 2});
}

/// If it never does, they are told why.
TEST(Rejoin, TellsWhoWaitsForAnotherListWhatItIs) {
  const auto channels = join_ranks(3);
  std::jthread first([&] {
    EXPECT_THAT(rejoin(*channels[0], {0, 1, 2}, options_within_ms(20'000)),
                FailsWith(Code::mismatch, HasSubstr("0-2")));
  });
  EXPECT_THAT(rejoin(*channels[1], {0, 1}, options_within_ms(2000)),
              FailsWith(Code::timeout, AllOf(HasSubstr("The last answer was: the list of ranks that go on is \"0, 1\""),
                                             HasSubstr("\"0-2\" on the one that it joins"))));
}

/// One goes away while it waits for another: who waits with it is told at once, and who comes later, too.
TEST(Rejoin, ADeathOnTheWayIsTold) {
  const auto channels = join_ranks(3);
  const std::vector<int> all{0, 1, 2};
  const auto went_away = FailsWith(Code::remote_error, HasSubstr("rank 2 " + describe_own_process() + " went away"));
  std::atomic<bool> dies{false};
  std::jthread first([&] { EXPECT_THAT(rejoin(*channels[0], all, options_within_ms(20'000)), went_away); });
  std::jthread last([&] {
    JoinOptions options = options_within_ms(20'000);
    options.wait.abort = &dies;
    EXPECT_FALSE(rejoin(*channels[2], all, options));
  });
  const auto joined = [&] {
    const auto report = report_of_root(channels[0]->self().rejoin_address);
    return report ? report->joined : 0;
  };
  for (const Stopwatch watch; joined() < 2 && watch.elapsed() < std::chrono::seconds(15);)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(joined(), 2);
  const Stopwatch since_death;
  dies = true;
  first.join();
  EXPECT_LT(since_death.elapsed(), std::chrono::seconds(5)) << "not only at the deadline";
  EXPECT_THAT(rejoin(*channels[1], all, options_within_ms(20'000)), went_away);
  expect_together(rejoin_all(channels, {0, 1}), {0, 1});
}

/// One that comes late, for an attempt that the others have given up, does not spoil the next one.
TEST(Rejoin, ALateOneMayComeAgain) {
  const auto channels = join_ranks(4);
  std::vector<Joined> joined(3);
  on_ranks(3, [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_THAT(rejoin(*channels[place], {0, 1, 2, 3}, options_within_ms(20'000)),
                  FailsWith(Code::mismatch, HasSubstr("\"0-3\" on rank 2")));
    }
    joined[place] = rejoin(*channels[place], {0, 1, 2}, options_within_ms(20'000));
  });
  expect_together(joined, {0, 1, 2});
}

TEST(Rejoin, RefusesListsWithoutThisRank) {
  const auto channels = join_ranks(2);
  for (const auto& list : {std::vector<int>{}, {1}, {0, 0}, {1, 0}, {0, 2}, {-1, 0}})
    EXPECT_THAT(rejoin(*channels[0], list, options_within_ms(1000)),
                FailsWith(Code::internal_error, HasSubstr("is not one of them")));
}

/// The address is kept, and nothing listens there until it is needed.
TEST(Rejoin, OpensNoPortBefore) {
  const auto channels = join_ranks(2);
  for (const auto& channel : channels) {
    EXPECT_NE(channel->self().rejoin_address.port, 0);
    EXPECT_EQ(channel->self().rejoin_address, *channel->rejoin_socket().local_address());
    EXPECT_THAT(connect_to(channel->self().rejoin_address, within_ms(1000)),
                FailsWith(Code::remote_error, HasSubstr("Connection refused")));
    EXPECT_THAT(listen_at(channel->self().rejoin_address),
                FailsWith(Code::system_error, HasSubstr("Address already in use")));
  }
}

}  // namespace
}  // namespace strait::testing
