// A rank is killed: every survivor is told which, within a second; completed results stay; nothing is left behind.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>

#include "fault/leftovers.hpp"
#include "fault/rank_processes.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

/// Makes operations of all kinds until one fails. The results of completed ones are checked.
straitResult_t run_stream(straitComm_t comm, int rank, int ranks, std::size_t count, Report& report) {
  std::vector<std::int32_t> buffer, other(count * static_cast<std::size_t>(ranks));
  for (int i = 0;; ++i) {
    straitResult_t result = straitSuccess;
    if (i % 4 == 1) {
      const std::vector<std::int32_t> mine(count, 100 * i + rank);
      result = straitAllGather(mine.data(), other.data(), count, straitInt32, comm, nullptr);
      for (int peer = 0; result == straitSuccess && peer < ranks; ++peer)
        EXPECT_EQ(other[(static_cast<std::size_t>(peer) + 1) * count - 1], 100 * i + peer);
    } else if (i % 4 == 3) {
      std::int32_t out = 7 * i + rank, in = -1;
      STRAIT_EXPECT_OK(straitGroupStart());
      (void)straitSend(&out, 1, straitInt32, (rank + 1) % ranks, comm, nullptr);
      (void)straitRecv(&in, 1, straitInt32, (rank + ranks - 1) % ranks, comm, nullptr);
      result = straitGroupEnd();
      EXPECT_TRUE(result != straitSuccess || in == 7 * i + (rank + ranks - 1) % ranks);
    } else {
      result = checked_all_reduce(comm, rank, ranks, count, i, buffer);
    }
    if (result != straitSuccess) return result;
    report.completed.fetch_add(1);
  }
}

struct Stream {
  int ranks;
  std::size_t count;
};
void PrintTo(const Stream& stream, std::ostream* out) { *out << stream.ranks << " ranks, count " << stream.count; }

class Death : public ::testing::TestWithParam<Stream> {};
INSTANTIATE_TEST_SUITE_P(Streams, Death,
                         ::testing::Values(Stream{2, 16}, Stream{2, 300'000}, Stream{3, 16}, Stream{3, 300'000},
                                           Stream{4, 16}, Stream{4, 300'000}));

/// Runs `stream` on every rank, kills one at a random moment and checks what the others report.
using Operations = std::function<straitResult_t(straitComm_t comm, int rank, Report& report)>;
void kill_one(int ranks, std::uint64_t seed, const Operations& stream) {
  const Leftovers leftovers;
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, ranks, report);
    if (comm == nullptr) return;
    const straitResult_t result = stream(comm, rank, report);
    report.fail_with(result, straitGetLastError(comm));
    expect_sticky(comm, result, report.message);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  const int victim = static_cast<int>(mix(seed) % static_cast<std::uint64_t>(ranks));
  std::this_thread::sleep_for(std::chrono::microseconds(mix(seed + 1) % 30'000));
  const pid_t pid = processes.pid(victim);
  const Stopwatch since_death;
  processes.signal(victim, SIGKILL);
  const std::string name =
      "rank " + std::to_string(victim) + " (host " + host_name() + ", pid " + std::to_string(pid) + ")";
  EXPECT_TRUE(
      processes.await([&](int rank) { return rank == victim || processes.report(rank).failed.load() != 0; }, 10'000));
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    const Report& report = processes.report(rank);
    EXPECT_EQ(report.result, straitRemoteError) << report.message;
    EXPECT_THAT(report.message, HasSubstr("needs " + name));
    EXPECT_LT(since_death.until(report.failed_at), seconds(1)) << "rank " << rank;
  }
  processes.end(victim, 1000);
  processes.expect_all_end_well();
  EXPECT_EQ(leftovers.that_stay(), "");
}

TEST_P(Death, AtRandomMoments) {
  const auto [ranks, count] = GetParam();
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    kill_one(ranks, seed * 10, [n = ranks, size = count](straitComm_t comm, int rank, Report& report) {
      return run_stream(comm, rank, n, size, report);
    });
}

/// Makes operations on registered memory, in which ranks access one another's memory directly, without slots.
straitResult_t run_registered_stream(straitComm_t comm, int rank, int ranks, Report& report) {
  constexpr std::size_t count = 200'000;
  void *memory = nullptr, *handle = nullptr;
  STRAIT_EXPECT_OK(straitMemAlloc(&memory, 2 * count * sizeof(std::int32_t)));
  straitResult_t result = straitCommRegister(comm, memory, 2 * count * sizeof(std::int32_t), &handle);
  auto* const input = static_cast<std::int32_t*>(memory);
  auto* const output = input + count;
  for (std::int32_t i = 0; result == straitSuccess; ++i) {
    std::fill(input, input + count, i + rank);
    result = straitAllReduce(input, output, count, straitInt32, straitSum, comm, nullptr);
    if (result != straitSuccess) break;
    EXPECT_EQ(std::count(output, output + count, i * ranks + ranks * (ranks - 1) / 2), count);
    report.completed.fetch_add(1);
  }
  return result;
}
TEST(DeathOf, ARankWhosePeersUseItsMemory) {
  for (std::uint64_t seed = 1; seed < 4; ++seed)
    kill_one(3, seed * 10,
             [](straitComm_t comm, int rank, Report& report) { return run_registered_stream(comm, rank, 3, report); });
}

/// Rank 1 waits for rank 2, which has not called yet. Rank 0 dies, for which rank 1 does not wait yet.
TEST(DeathOf, ARankThatNobodyWaitsForYet) {
  constexpr int ranks = 3;
  RankProcesses processes(ranks, [](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, ranks, report);
    if (comm == nullptr) return;
    if (rank != 1) std::this_thread::sleep_for(seconds(60));
    std::int32_t value = 0;
    const straitResult_t result = straitBroadcast(&value, &value, 1, straitInt32, 2, comm, nullptr);
    report.fail_with(result, straitGetLastError(comm));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  std::this_thread::sleep_for(milliseconds(300));  // until rank 1 waits
  const Stopwatch since_death;
  processes.signal(0, SIGKILL);
  EXPECT_TRUE(
      processes.await([&](int rank) { return rank != 1 || processes.report(rank).failed.load() != 0; }, 10'000));
  const Report& report = processes.report(1);
  EXPECT_EQ(report.result, straitRemoteError) << report.message;
  EXPECT_THAT(std::string(report.message), HasSubstr("needs rank 0 (host " + host_name()));
  EXPECT_LT(since_death.until(report.failed_at), seconds(1));
  EXPECT_EQ(processes.end(1, 5000), 0);
}

/// Rank 2 dies, and rank 0 leaves as a rank does that was told of it. Rank 1 then waits for rank 0 and must be told of
/// rank 2's death.
TEST(DeathOf, ARankForWhichAnotherLeaves) {
  constexpr int ranks = 3;
  RankProcesses processes(ranks, [](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, ranks, report);
    if (comm == nullptr) return;
    if (rank == 2) std::this_thread::sleep_for(seconds(60));
    std::this_thread::sleep_for(milliseconds(rank == 0 ? 300 : 600));
    if (rank == 1) {
      std::int32_t value = 0;
      const straitResult_t result = straitBroadcast(&value, &value, 1, straitInt32, 0, comm, nullptr);
      report.fail_with(result, straitGetLastError(comm));
    }
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  processes.signal(2, SIGKILL);
  EXPECT_TRUE(
      processes.await([&](int rank) { return rank != 1 || processes.report(rank).failed.load() != 0; }, 10'000));
  const Report& report = processes.report(1);
  EXPECT_EQ(report.result, straitRemoteError) << report.message;
  EXPECT_THAT(std::string(report.message), HasSubstr("needs rank 2 (host " + host_name()));
  for (const int rank : {0, 1}) EXPECT_EQ(processes.end(rank, 5000), 0);
}

/// A rank that calls exec() keeps only its process id. Rank 0 created the shared memory; ranks 1 and 2 are threads of
/// one process.
TEST(DeathOf, ARankThatBecomesAnotherProgram) {
  for (const int victim : {0, 1}) {
    const auto live = [victim](const straitUniqueId& id, int rank, Report& report) {
      straitComm_t comm = join(id, rank, 3, report);
      if (comm == nullptr) return;
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
      if (rank == victim) {
        std::this_thread::sleep_for(milliseconds(200));  // until the others wait
        report.fail_with(straitSuccess, "");
        execlp("sleep", "sleep", "60", nullptr);
      }
      const straitResult_t result = straitBarrier(comm, nullptr);
      report.fail_with(result, straitGetLastError(comm));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    };
    RankProcesses processes(2, [&](int process, const straitUniqueId& id, Report& report) {
      Report of_second_thread;
      std::jthread second;
      if (process == 1) second = std::jthread([&] { live(id, 2, of_second_thread); });
      live(id, process, report);
    });
    EXPECT_TRUE(processes.await([&](int rank) { return processes.report(rank).failed.load() != 0; }, 20'000));
    const Report &dead = processes.report(victim), &told = processes.report(1 - victim);
    EXPECT_EQ(told.result, straitRemoteError) << told.message;
    EXPECT_THAT(std::string(told.message), HasSubstr(victim == 0 ? "needs rank 0 (host" : "needs rank "));
    EXPECT_LT(told.failed_at - dead.failed_at, seconds(1));
    EXPECT_EQ(processes.end(1 - victim, 10'000), 0);
  }
}

/// Makes pidfd_open() fail in this process as on a kernel that does not have it.
void refuse_pidfd_open() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  ASSERT_EQ(syscall(SYS_pidfd_open, getpid(), 0), -1);
}

/// Kills rank 1, which leaves a data loader behind that inherited every descriptor and outlives it. Each rank calls
/// `prepare` before it joins.
void kill_beside_a_data_loader(const std::function<void(int rank)>& prepare) {
  constexpr int ranks = 3;
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    prepare(rank);
    straitComm_t comm = join(id, rank, ranks, report);
    if (comm == nullptr) return;
    if (rank == 1) {
      if (fork() == 0) {
        std::this_thread::sleep_for(milliseconds(3000));
        _exit(0);
      }
      pause();
    }
    const straitResult_t result = straitBarrier(comm, nullptr);
    report.fail_with(result, straitGetLastError(comm));
    straitComm_t part = nullptr;
    EXPECT_EQ(straitCommSplit(comm, 0, 0, &part, nullptr), straitRemoteError);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  std::this_thread::sleep_for(milliseconds(50));
  processes.expect_death_is_told(1, "needs rank 1");
}
TEST(DeathOf, ForkedChildrenThatKeepEverythingOpenHideNothing) {
  kill_beside_a_data_loader([](int) {});
}
TEST(DeathWithoutPidfd, OnAllRanks) {
  kill_beside_a_data_loader([](int) { refuse_pidfd_open(); });
}
TEST(DeathWithoutPidfd, OnTheDeadRankAlone) {
  kill_beside_a_data_loader([](int rank) {
    if (rank == 1) refuse_pidfd_open();
  });
}
TEST(DeathWithoutPidfd, OnTheSurvivorsAlone) {
  kill_beside_a_data_loader([](int rank) {
    if (rank != 1) refuse_pidfd_open();
  });
}

/// Ranks 0 and 1 are threads of one process, rank 2 is another. A rank that only makes others wait must not look dead.
TEST(DeathWithoutPidfd, IsNotSeenInRanksThatAreSlow) {
  constexpr int ranks = 3;
  const auto live = [](const straitUniqueId& id, int rank, Report& report) {
    straitComm_t comm = join(id, rank, ranks, report), part = nullptr;
    ASSERT_NE(comm, nullptr) << report.message;
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, nullptr));
    for (int slow = 0; slow < ranks; ++slow)
      for (straitComm_t used : {part, comm}) {
        if (rank == slow) std::this_thread::sleep_for(milliseconds(60));
        STRAIT_EXPECT_OK(checked_all_reduce(used, rank, ranks, 1000, slow, buffer));
      }
    if (rank == 0) std::this_thread::sleep_for(milliseconds(60));  // holds its locks longer than rank 1
    STRAIT_EXPECT_OK(straitCommDestroy(part));
    if (rank != 1) {
      std::this_thread::sleep_for(milliseconds(rank == 0 ? 60 : 0));
      if (rank == 0) STRAIT_EXPECT_OK(straitSend(buffer.data(), 1, straitInt32, 2, comm, nullptr));
      if (rank == 2) STRAIT_EXPECT_OK(straitRecv(buffer.data(), 1, straitInt32, 0, comm, nullptr));
    }
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  };
  RankProcesses processes(2, [&](int process, const straitUniqueId& id, Report& report) {
    refuse_pidfd_open();
    Report of_second_thread;
    std::jthread second;
    if (process == 0) second = std::jthread([&] { live(id, 1, of_second_thread); });
    live(id, process == 0 ? 0 : 2, report);
  });
  processes.expect_all_end_well();
}

/// Set-up calls do not use the path of collectives, and must notice a death as well.
void die_before_set_up_call(bool with_data_loader) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 3, report);
    if (comm == nullptr) return;
    if (rank == 1) {
      if (with_data_loader && fork() == 0) {
        std::this_thread::sleep_for(milliseconds(3000));
        _exit(0);
      }
      pause();
    }
    straitComm_t part = nullptr;
    const straitResult_t result = straitCommSplit(comm, 0, rank, &part, nullptr);
    report.fail_with(result, straitGetLastError(nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  std::this_thread::sleep_for(milliseconds(50));
  processes.expect_death_is_told(1, "rank 1 (host");
}
TEST(DeathOf, DuringASplit) { die_before_set_up_call(false); }
TEST(DeathOf, DuringASplitWithADataLoader) { die_before_set_up_call(true); }

}  // namespace
}  // namespace strait::testing
