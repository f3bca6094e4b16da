#include "bootstrap/launch.hpp"
#include "bootstrap/local_meeting.hpp"
#include "launchers.hpp"
#include "support/free_port.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// On one host. `job`: any text that no other test uses now.
Variables open_mpi_of(int rank, int ranks, const std::string& job) {
  return with(open_mpi, {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                         {"OMPI_COMM_WORLD_SIZE", std::to_string(ranks)},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks)},
                         {"PMIX_NAMESPACE", job}});
}

/// Starts `ranks` ranks as threads, twice over, as a program that makes two communicators does.
void join_as(int ranks, const std::function<Variables(int)>& variables) {
  on_ranks(ranks, [&](int rank) {
    Environment environment = environment_of(variables(rank));
    for (int start = 0; start < 3; ++start) {
      auto info = read_launch_environment(environment);
      ASSERT_TRUE(info) << info.error().message;
      JoinOptions options;
      options.environment = environment;
      options.wait = within_ms(10'000);
      auto channel = join_launched(*info, options);
      ASSERT_TRUE(channel) << channel.error().message;
      EXPECT_EQ((*channel)->rank(), rank);
      EXPECT_EQ((*channel)->ranks(), ranks);
      EXPECT_TRUE((*channel)->barrier(within_ms(10'000)));
    }
  });
}

TEST(JoinLaunched, Alone) {
  join_as(1, [](int) { return Variables{}; });
}

TEST(JoinLaunched, OnOneHostOverAUnixSocket) {
  const FreePort port;
  const std::string job = port.text();
  join_as(5, [&](int rank) { return open_mpi_of(rank, 5, job); });
}

TEST(JoinLaunched, AtAnAddress) {
  const FreePort port;
  const std::string root = "127.0.0.1:" + port.text();
  join_as(4, [&](int rank) {
    return Variables{
        {"STRAIT_RANK", std::to_string(rank)}, {"STRAIT_RANKS", "4"}, {"STRAIT_ROOT", root}, {"STRAIT_KEY", secret}};
  });
}

TEST(JoinLaunched, AtAnIpv6Address) {
  auto probe = listen_at(address_of("::1"));
  if (!probe) GTEST_SKIP() << "this host has no IPv6: " << probe.error().message;
  std::string root = "[::1]:" + std::to_string(probe->local_address()->port);
  *probe = Socket();
  join_as(4, [&](int rank) {
    return Variables{{"STRAIT_SOCKET_IFNAME", ""},
                     {"STRAIT_RANK", std::to_string(rank)},
                     {"STRAIT_RANKS", "4"},
                     {"STRAIT_ROOT", root},
                     {"STRAIT_KEY", secret}};
  });
}

Joined join_with(const Variables& variables, std::int64_t timeout_ms = 20'000) {
  const Environment environment = environment_of(variables);
  JoinOptions options;
  options.environment = environment;
  options.wait = within_ms(timeout_ms);
  return join_launched(*read_launch_environment(environment), options);
}

/// Rank 2 was not there when the start of ranks 0 and 1 failed. All begin anew at once. Rank 2 may be there before rank
/// 0 has done so: it then hears of that failure, but once only.
void join_after(const std::function<void(int rank)>& failure, const std::function<Variables(int rank)>& variables) {
  on_ranks(2, failure);
  const Stopwatch watch;
  on_ranks(3, [&](int rank) {
    Joined joined = join_with(variables(rank));
    if (!joined && rank == 2) joined = join_with(variables(rank));
    ASSERT_TRUE(joined) << "rank " << rank << ": " << joined.error().message;
    EXPECT_TRUE((*joined)->barrier(within_ms(10'000)));
  });
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

void join_after_a_failure(const std::function<Variables(int rank, int ranks)>& variables) {
  join_after(
      [&](int rank) {
        EXPECT_THAT(join_with(variables(rank, 3 + rank)), FailsWith(Code::mismatch, HasSubstr("disagree")));
      },
      [&](int rank) { return variables(rank, 3); });
}

TEST(JoinLaunched, AgainAtAnAddressAfterAFailure) {
  const FreePort port;
  const std::string root = "127.0.0.1:" + port.text();
  join_after_a_failure([&](int rank, int ranks) {
    return Variables{{"STRAIT_RANK", std::to_string(rank)},
                     {"STRAIT_RANKS", std::to_string(ranks)},
                     {"STRAIT_ROOT", root},
                     {"STRAIT_KEY", secret}};
  });
}

TEST(JoinLaunched, AgainOnOneHostAfterAFailure) {
  const FreePort port;
  const std::string job = port.text();
  join_after_a_failure([&](int rank, int ranks) { return open_mpi_of(rank, ranks, job); });
}

/// In step, so that rank 1 is given the id of the root that is about to end.
TEST(JoinLaunched, AgainOnOneHostAfterADeadline) {
  for (int i = 0; i < 10; ++i) {
    const FreePort port;
    const auto variables = [&](int rank) { return open_mpi_of(rank, 3, port.text()); };
    join_after(
        [&](int rank) { EXPECT_THAT(join_with(variables(rank), 200), FailsWith(Code::timeout, HasSubstr(": 2"))); },
        variables);
  }
}

/// What listens for the others has not heard yet that this rank has failed by itself.
TEST(JoinLaunched, AgainAtOnceAfterAFailureOfItsOwn) {
  const FreePort port;
  const Variables variables = {
      {"STRAIT_RANK", "0"}, {"STRAIT_RANKS", "2"}, {"STRAIT_ROOT", "127.0.0.1:" + port.text()}, {"STRAIT_KEY", secret}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(join_with(with(variables, {{"STRAIT_SOCKET_IFNAME", "nosuch"}})),
                FailsWith(Code::invalid_argument, HasSubstr("nosuch")));
    EXPECT_THAT(join_with(variables, 1000), FailsWith(Code::timeout, HasSubstr("by the deadline: 1")));
  }
}

TEST(JoinLaunched, AnotherPortHolderIsNamed) {
  auto listener = listen_at(address_of("127.0.0.1"));
  std::string root = listener->local_address()->to_string();
  Environment environment =
      environment_of({{"STRAIT_RANK", "0"}, {"STRAIT_RANKS", "2"}, {"STRAIT_ROOT", root}, {"STRAIT_KEY", secret}});
  JoinOptions options;
  options.environment = environment;
  options.wait = within_ms(300);
  EXPECT_THAT(join_launched(*read_launch_environment(environment), options),
              FailsWith(Code::system_error, AllOf(HasSubstr(root), HasSubstr("Another process listens there"))));
}

/// Also one that is a moment late.
TEST(JoinLaunched, LocalRanksHearWhyRankZeroHasNoId) {
  const FreePort port;
  const Stopwatch watch;
  on_ranks(3, [&](int rank) {
    const Variables variables = open_mpi_of(rank, 3, port.text());
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_THAT(
        join_with(rank == 0 ? with(variables, {{"STRAIT_SOCKET_IFNAME", "nosuch"}}) : variables),
        FailsWith(Code::invalid_argument, AllOf(HasSubstr("rank 0 cannot join, on host "), HasSubstr("nosuch"))));
  });
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

/// It waits for them for a moment only.
TEST(JoinLaunched, RankZeroWithoutAnIdFailsAlsoIfNobodyAsks) {
  const FreePort port;
  const Stopwatch watch;
  EXPECT_THAT(join_with(with(open_mpi_of(0, 3, port.text()), {{"STRAIT_SOCKET_IFNAME", "nosuch"}})),
              FailsWith(Code::invalid_argument, HasSubstr("nosuch")));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

TEST(JoinLaunched, ALocalRankWithoutRankZeroGivesUpByItsDeadline) {
  EXPECT_THAT(ask_local_root("a job that nobody started", within_ms(80)),
              FailsWith(Code::timeout, AllOf(HasSubstr("rank 0"), HasSubstr("STRAIT_ROOT"))));
}

}  // namespace
}  // namespace strait::testing
