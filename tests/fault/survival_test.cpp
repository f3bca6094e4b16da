// Ranks are killed, and the others continue the same work without them on a smaller communicator.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "fault/leftovers.hpp"
#include "fault/rank_processes.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

/// Makes all-reduces until one fails, which must be because of some rank's death.
void run_until_a_death(straitComm_t comm, std::size_t count) {
  int rank = -1, ranks = 0;
  STRAIT_EXPECT_OK(straitCommUserRank(comm, &rank));
  STRAIT_EXPECT_OK(straitCommCount(comm, &ranks));
  std::vector<std::int32_t> buffer;
  straitResult_t result = straitSuccess;
  for (int i = 0; result == straitSuccess; ++i) result = checked_all_reduce(comm, rank, ranks, count, i, buffer);
  EXPECT_EQ(result, straitRemoteError) << straitGetLastError(comm);
}

/// Makes all-reduces that must all be right. Returns the number of ranks that took part.
int run_well(straitComm_t comm, std::size_t count) {
  int rank = -1, ranks = 0;
  STRAIT_EXPECT_OK(straitCommUserRank(comm, &rank));
  STRAIT_EXPECT_OK(straitCommCount(comm, &ranks));
  std::vector<std::int32_t> buffer;
  for (int i = 0; i < 20; ++i) STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, count, i, buffer));
  return ranks;
}

struct Survival {
  int ranks;
  std::size_t count;
  std::vector<int> victims;  ///< killed one after another; ranks of the first communicator
};
void PrintTo(const Survival& survival, std::ostream* out) {
  *out << survival.ranks << " ranks, count " << survival.count << ", without "
       << ::testing::PrintToString(survival.victims);
}

class Survivors : public ::testing::TestWithParam<Survival> {};
INSTANTIATE_TEST_SUITE_P(Streams, Survivors,
                         ::testing::Values(Survival{2, 16, {0}}, Survival{3, 300'000, {1}}, Survival{4, 16, {0, 2}},
                                           Survival{4, 300'000, {3, 0, 1}}));

/// What a rank, which may be a victim itself, does until all victims are dead.
void live_on(straitComm_t comm, const Survival& survival, Report& report) {
  std::vector<int> alive(static_cast<std::size_t>(survival.ranks));
  for (int rank = 0; rank < survival.ranks; ++rank) alive[static_cast<std::size_t>(rank)] = rank;
  for (const int victim : survival.victims) {
    run_until_a_death(comm, survival.count);
    const auto dead = std::find(alive.begin(), alive.end(), victim);
    const int excluded = static_cast<int>(dead - alive.begin());
    straitConfig_t config = test_config();
    straitComm_t smaller = nullptr;
    STRAIT_EXPECT_OK(straitCommShrink(comm, &excluded, 1, &smaller, &config));
    if (smaller == nullptr) return;
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
    comm = smaller;
    alive.erase(dead);
    EXPECT_EQ(run_well(comm, survival.count), static_cast<int>(alive.size()));
    report.completed.fetch_add(1);
  }
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST_P(Survivors, GoOnWithTheSameWork) {
  const Survival& survival = GetParam();
  const Leftovers leftovers;
  RankProcesses processes(survival.ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, survival.ranks, report);
    if (comm != nullptr) live_on(comm, survival, report);
  });
  ASSERT_TRUE(processes.await_joined());
  std::vector<int> dead;
  for (const int victim : survival.victims) {
    std::this_thread::sleep_for(std::chrono::microseconds(mix(dead.size()) % 30'000));
    processes.signal(victim, SIGKILL);
    processes.end(victim, 1000);
    dead.push_back(victim);
    const auto goes_on = [&](int rank) {
      return std::count(dead.begin(), dead.end(), rank) != 0 || processes.report(rank).completed.load() == dead.size();
    };
    ASSERT_TRUE(processes.await(goes_on, 20'000)) << "after the death of rank " << victim;
  }
  processes.expect_all_end_well();
  EXPECT_EQ(leftovers.that_stay(), "");
}

/// No rank died, but the communicator has failed. A new one of all ranks must work.
TEST(Survival, OfAFailureThatKilledNobody) {
  run_as_processes(3, [](straitComm_t comm, int rank, int ranks) {
    if (rank == 1) STRAIT_EXPECT_OK(straitCommAbort(comm));
    EXPECT_NE(straitBarrier(comm, nullptr), straitSuccess);
    straitComm_t fresh = nullptr;
    STRAIT_EXPECT_OK(straitCommShrink(comm, nullptr, 0, &fresh, nullptr));
    EXPECT_EQ(run_well(fresh, 1000), ranks);
    STRAIT_EXPECT_OK(straitCommDestroy(fresh));
    EXPECT_NE(straitBarrier(comm, nullptr), straitSuccess) << "the old one stays as it was";
  });
}

/// A rank that should have gone on with the others does not come either: the rest must be told at once and go on
/// without it.
void go_on_without_rank_3(const std::function<void(straitComm_t comm)>& end_of_rank_3, const std::string& words) {
  RankProcesses processes(4, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 4, report);
    if (comm == nullptr) return;
    run_until_a_death(comm, 16);
    if (rank == 3) return end_of_rank_3(comm);
    const int excluded[] = {1, 3};
    straitComm_t smaller = nullptr;
    const Stopwatch watch;
    const straitResult_t result = straitCommShrink(comm, excluded, 1, &smaller, nullptr);
    EXPECT_LT(watch.elapsed(), seconds(5)) << "not after test_config()'s 20 s";
    report.fail_with(result, straitGetLastError(nullptr));
    EXPECT_EQ(smaller, nullptr);
    STRAIT_EXPECT_OK(straitCommShrink(comm, excluded, 2, &smaller, nullptr));
    EXPECT_EQ(run_well(smaller, 1000), 2);
    STRAIT_EXPECT_OK(straitCommDestroy(smaller));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  const std::string name = "rank 3 (host " + host_name() + ", pid " + std::to_string(processes.pid(3)) + ")";
  processes.signal(1, SIGKILL);
  processes.end(1, 1000);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(processes.end(rank, 20'000), 0);
    EXPECT_EQ(processes.report(rank).result, straitRemoteError);
    EXPECT_THAT(processes.report(rank).message,
                ::testing::StartsWith(name + ", which is to go on with others" + words));
  }
}
/// Over TCP only the end of its connection is known.
TEST(Survival, OfASecondDeath) {
  const char* const transport = std::getenv("STRAIT_TRANSPORT");
  const bool is_tcp = transport != nullptr && std::string_view(transport) == "tcp";
  go_on_without_rank_3([](straitComm_t) { raise(SIGKILL); },
                       is_tcp ? " and whose connection has ended" : " and whose process has died");
}
/// Rank 2 does not call. The first rank that hears so destroys its communicator, which must not mislead the other one.
TEST(Survival, OfARankThatDoesNotCallIsToldToAllAlike) {
  RankProcesses processes(4, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 4, report);
    if (comm == nullptr) return;
    run_until_a_death(comm, 16);
    if (rank == 2) return std::this_thread::sleep_for(seconds(3));
    straitConfig_t config = test_config();
    config.init_timeout_ms = 1000;
    const int excluded[] = {1};
    straitComm_t smaller = nullptr;
    const straitResult_t result = straitCommShrink(comm, excluded, 1, &smaller, &config);
    report.fail_with(result, straitGetLastError(nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  processes.signal(1, SIGKILL);
  processes.end(1, 1000);
  for (const int rank : {0, 3}) {
    EXPECT_EQ(processes.end(rank, 20'000), 0);
    EXPECT_EQ(processes.report(rank).result, straitTimeout);
    EXPECT_THAT(processes.report(rank).message, ::testing::HasSubstr("rank 2 (host "));
  }
}
TEST(Survival, OfARankThatLeaves) {
  go_on_without_rank_3([](straitComm_t comm) { STRAIT_EXPECT_OK(straitCommDestroy(comm)); },
                       ", has destroyed its communicator");
}

}  // namespace
}  // namespace strait::testing
