// What the log says while ranks wait for one another.
#include <algorithm>
#include <chrono>

#include "base/log.hpp"
#include "bootstrap/launch.hpp"
#include "ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Returns what `body` writes to stderr while messages of this level are logged.
template <class Body>
std::string log_of(const Body& body, LogLevel level = LogLevel::warn) {
  set_log_level(level);
  ::testing::internal::CaptureStderr();
  body();
  set_log_level(LogLevel::warn);
  return ::testing::internal::GetCapturedStderr();
}

std::ptrdiff_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

UniqueId make_id_that_reminds(std::int64_t after_ms = 50) {
  RootOptions root;
  root.remind_after_ms = after_ms;
  return make_id(std::move(root));
}

JoinOptions impatient(int rank, int ranks) {
  JoinOptions options = options_of(rank, ranks, 600);
  options.remind_after_ms = 50;
  return options;
}

/// For ranks that must keep quiet. On a busy machine their handshakes may take longer than 50 ms; where they do remind,
/// they have the time for it.
JoinOptions quiet(int rank, int ranks) {
  JoinOptions options = options_of(rank, ranks, 1500);
  options.remind_after_ms = 1000;
  return options;
}

/// An address of this host at which nobody listens, and that nobody else gets.
struct Reserved {
  Socket socket = *reserve_at(address_of("127.0.0.1"));
  SocketAddress address = *socket.local_address();
};

TEST(WaitReminder, IsDueAfterGrowingTimes) {
  WaitReminder reminder(0, 100);
  EXPECT_FALSE(reminder.due());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const auto waited = reminder.due();
  ASSERT_TRUE(waited);
  EXPECT_THAT(*waited, HasSubstr(" ms"));
  EXPECT_FALSE(reminder.due()) << "what was missed is not made up for";
}

TEST(WaitReminder, ComesSeldom) {
  WaitReminder reminder(0, 20);
  int times = 0;
  for (const Deadline end = Deadline::after_ms(230); !end.expired();) {
    times += reminder.due() ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(times, 1);
  EXPECT_LE(times, 4) << "after 20, 60, 120 and 240 ms";
}

TEST(Reminders, TheRootNamesWhoIsMissing) {
  const std::string log = log_of([] { join_all(make_id_that_reminds(), {quiet(0, 8), quiet(3, 8)}); });
  EXPECT_THAT(log,
              AllOf(HasSubstr("2 of 8 ranks have joined after "), HasSubstr("ranks 1, 2, 4-7 are missing. Start")));
  EXPECT_THAT(log, Not(HasSubstr("has waited"))) << "those that have joined keep quiet";
  EXPECT_LE(lines_of(log), 6) << "after 50, 150, 300, 600, 900 and 1200 ms: " << log;
}

TEST(Reminders, TheRootNamesAFewOnly) {
  const std::string log = log_of([] {
    join_all(make_id_that_reminds(), {quiet(1, 12), quiet(3, 12), quiet(5, 12), quiet(7, 12)});
  });
  EXPECT_THAT(log, HasSubstr("ranks 0, 2, 4, 6 and 4 more are missing"));
}

TEST(Reminders, ARootThatNobodyHasJoinedYetKeepsQuiet) {
  EXPECT_THAT(log_of([] {
                const UniqueId id = make_id_that_reminds(500);  // enough for one rank to join
                std::this_thread::sleep_for(std::chrono::milliseconds(1100));
                EXPECT_TRUE(join(id, options_of(0, 1)));
              }),
              IsEmpty());
}

TEST(Reminders, ARankSaysWhatNobodyListensAt) {
  const Reserved reserved;
  const UniqueId id{reserved.address, {}, true};
  const std::string log = log_of([&] { EXPECT_FALSE(join(id, impatient(1, 2))); });
  EXPECT_THAT(log, AllOf(HasSubstr(" rank 1: has waited for "),
                         HasSubstr("nobody listens at " + reserved.address.to_string() + " yet. Start the rank")));
  EXPECT_LE(lines_of(log), 4) << log;
}

TEST(Reminders, ARankThatGoesOnWithOthersHasItsEarlierNumber) {
  std::vector<std::unique_ptr<Channel>> channels;
  for (Joined& joined : join_all(make_id(), {options_of(0, 3), options_of(1, 3), options_of(2, 3)})) {
    ASSERT_TRUE(joined) << joined.error().message;
    channels.push_back(std::move(*joined));
  }
  EXPECT_THAT(log_of([&] {
                EXPECT_FALSE(rejoin(*channels[2], {1, 2}, impatient(0, 1)));
              }),
              AllOf(HasSubstr(" rank 2: has waited for "), HasSubstr("must call straitCommShrink")));
}

TEST(Reminders, ARankSaysThatTheRootDoesNotAnswer) {
  const Socket listener = *listen_at(address_of("127.0.0.1"));
  const UniqueId id{*listener.local_address(), {}, false};
  EXPECT_THAT(log_of([&] { EXPECT_FALSE(join(id, impatient(1, 2))); }),
              HasSubstr(id.root.to_string() + " accepted the connection but does not answer. Check"));
}

TEST(Reminders, ARankSaysThatItWaitsForRankZeroOfItsHost) {
  LaunchInfo info;
  info.rank = 1;
  info.ranks = 2;
  info.meeting = Meeting::local;
  info.job = "a job that nobody started";
  EXPECT_THAT(log_of([&] { EXPECT_FALSE(join_launched(info, impatient(1, 2))); }),
              AllOf(HasSubstr(" rank 1: has waited for "), HasSubstr("waiting for rank 0 at the unix socket")));
}

/// Once they have joined, rank 0 hears who does not come to what all have to do together.
TEST(Reminders, RankZeroNamesWhoMakesNoCall) {
  const std::string log = log_of([] {
    const UniqueId id = make_id();
    on_ranks(3, [&](int rank) {
      JoinOptions options = options_of(rank, 3);
      options.remind_after_ms = rank == 0 ? 50 : 1000;
      options.call = "split of the communicator";
      const auto channel = join(id, options);
      ASSERT_TRUE(channel) << channel.error().message;
      if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      EXPECT_TRUE((*channel)->barrier(within_ms(10'000)));
    });
  });
  EXPECT_THAT(log, AllOf(HasSubstr(" rank 0: the split of the communicator has waited for "),
                         HasSubstr("nothing came from rank 2 (host"), Not(HasSubstr(" rank 1: "))));
}

TEST(Reminders, AreSilentWhereTheLogIsOff) {
  const Reserved reserved;
  EXPECT_THAT(log_of(
                  [&] {
                    EXPECT_FALSE(join({reserved.address, {}, true}, impatient(1, 2)));
                    EXPECT_FALSE(join(make_id_that_reminds(), impatient(0, 2)));
                  },
                  LogLevel::off),
              IsEmpty());
}

TEST(Reminders, ARankThatHasJoinedIsToldAtLevelInfo) {
  EXPECT_THAT(log_of([] { EXPECT_FALSE(join(make_id(), impatient(0, 2))); }, LogLevel::info),
              HasSubstr("and waits for the others of 2 ranks"));
}

}  // namespace
}  // namespace strait::testing
