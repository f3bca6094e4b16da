// A slow rank is not a dead one; a deadline, an abort or an early destroy ends waits.
#include "fault/rank_processes.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Stopped, ARankIsWaitedForAndTheBitsAreRight) {
  constexpr std::uint64_t operations = 400;
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 3, report);
    if (comm == nullptr) return;
    std::vector<std::int32_t> buffer;
    for (int i = 0; report.completed.load() < operations; ++i) {
      STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, 3, i % 10 == 0 ? 50'000 : 16, i, buffer));
      report.completed.fetch_add(1);
      if (i % 20 == 0) std::this_thread::sleep_for(milliseconds(5));
    }
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  for (int i = 0; i < 2; ++i) {
    processes.signal(1, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(250));
    for (int rank : {0, 2}) EXPECT_EQ(processes.report(rank).failed.load(), 0);
    processes.signal(1, SIGCONT);
    std::this_thread::sleep_for(milliseconds(20));
  }
  processes.expect_all_end_well();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.report(rank).completed.load(), operations);
}

TEST(Stopped, ARankIsNamedWhenTheDeadlinePasses) {
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    straitConfig_t config = test_config();
    config.timeout_ms = 1000;
    straitComm_t comm = join(id, rank, 2, report, config);
    if (comm == nullptr) return;
    if (rank == 1) raise(SIGSTOP);
    const straitResult_t result = straitBarrier(comm, nullptr);
    report.fail_with(result, straitGetLastError(comm));
    expect_sticky(comm, result, report.message);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  const pid_t stopped = processes.pid(1);
  EXPECT_EQ(processes.end(0, 10'000), 0);
  processes.expect_all_end_well();  // the stopped rank continues and is told of the failure
  for (int rank : {0, 1}) {
    EXPECT_EQ(processes.report(rank).result, straitTimeout);
    EXPECT_THAT(processes.report(rank).message, HasSubstr("1000 ms"));
    EXPECT_THAT(processes.report(rank).message,
                HasSubstr("waiting for rank 1 (host " + host_name() + ", pid " + std::to_string(stopped) + ")"));
  }
}

/// Rank 2 of four comes to a call only after the others' deadline, and not all of them wait for it directly.
void expect_late_rank_is_named(const char* transport, straitResult_t (*call)(void* buffer, straitComm_t comm)) {
  RankProcesses processes(4, [&](int rank, const straitUniqueId& id, Report& report) {
    setenv("STRAIT_TRANSPORT", transport, 1);
    straitConfig_t config = test_config();
    config.timeout_ms = 400;
    straitComm_t comm = join(id, rank, 4, report, config);
    if (comm == nullptr) return;
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    std::vector<float> buffer(1 << 20);
    if (rank == 2) {
      straitResult_t error = straitSuccess;
      for (int looks = 0; error == straitSuccess && looks < 4000; ++looks) {
        std::this_thread::sleep_for(milliseconds(5));
        STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
      }
    }
    EXPECT_EQ(call(buffer.data(), comm), straitTimeout);
    EXPECT_THAT(straitGetLastError(comm),
                AllOf(HasSubstr("while waiting for rank 2 ("), HasSubstr(", which has not made this call. Look at"),
                      HasSubstr("STRAIT_TIMEOUT_MS")));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  processes.expect_all_end_well(60'000);
}

TEST(Late, TheRankThatHasNotCalledIsNamed) {
  for (const char* transport : {"shm", "tcp"}) {
    expect_late_rank_is_named(transport, [](void* buffer, straitComm_t comm) {
      return straitBroadcast(buffer, buffer, 1 << 20, straitFloat32, 0, comm, nullptr);
    });
    expect_late_rank_is_named(transport, [](void* buffer, straitComm_t comm) {
      return straitReduce(buffer, buffer, 1 << 20, straitFloat32, straitSum, 1, comm, nullptr);
    });
  }
}

/// All ranks of a communicator wait for the last one, and rank 0 is aborted; every call must return soon.
void check_abort(straitComm_t comm, int rank, int ranks, std::atomic<std::int64_t>& aborted_at_us) {
  std::vector<std::int32_t> buffer;
  STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 1000, 3, buffer));
  const Stopwatch watch;
  if (rank == 0) {
    std::jthread aborter([&] {
      std::this_thread::sleep_for(milliseconds(100));
      aborted_at_us.store(now_us());
      STRAIT_EXPECT_OK(straitCommAbort(comm));
    });
    EXPECT_EQ(straitRecv(buffer.data(), 1000, straitInt32, ranks - 1, comm, nullptr), straitAborted);
  } else if (rank != ranks - 1) {
    EXPECT_EQ(straitBarrier(comm, nullptr), straitAborted);
  } else {
    std::this_thread::sleep_for(milliseconds(150));  // not in a call when the abort happens
  }
  const std::int64_t returned_at_us = now_us();
  EXPECT_TRUE(rank == ranks - 1 ||
              std::chrono::microseconds(returned_at_us - aborted_at_us.load()) - watch.stalled() < seconds(2));
  straitResult_t error = straitSuccess;  // the abort may come later than the time noted before it
  for (const auto until = Clock::now() + seconds(10); error == straitSuccess && Clock::now() < until;) {
    std::this_thread::sleep_for(milliseconds(1));
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
  }
  const std::string message = straitGetLastError(comm);
  EXPECT_THAT(message, HasSubstr("aborted by rank 0"));
  expect_sticky(comm, straitAborted, message);
}

TEST(Abort, EndsTheWaitsOfThreads) {
  std::atomic<std::int64_t> aborted_at_us{0};
  run_as_threads(3, [&](straitComm_t comm, int rank, int ranks) { check_abort(comm, rank, ranks, aborted_at_us); });
}

TEST(Abort, EndsTheWaitsOfProcesses) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* aborted_at_us = new (shared) std::atomic<std::int64_t>(0);
  run_as_processes(3, [&](straitComm_t comm, int rank, int ranks) { check_abort(comm, rank, ranks, *aborted_at_us); });
  munmap(shared, 4096);
}

/// Rank 0 fails in an operation while rank 1 waits for it in a set-up call, which uses another path; rank 1 must
/// return.
void fail_beside(straitResult_t (*set_up)(straitComm_t comm), bool comes_late) {
  Meeting meeting(2);
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    straitConfig_t config = test_config();
    config.timeout_ms = 300;
    straitComm_t comm = join(id, rank, 2, report, config);
    if (comm == nullptr) return;
    const Stopwatch watch;
    std::int32_t value = 0;
    const straitResult_t result = rank == 0 ? straitRecv(&value, 1, straitInt32, 1, comm, nullptr) : set_up(comm);
    report.fail_with(result, straitGetLastError(nullptr));
    if (rank == 0 && comes_late) {
      EXPECT_EQ(set_up(comm), straitTimeout);
    }
    EXPECT_LT(watch.elapsed(), milliseconds(1300));
    meet();  // because a rank that left would end the wait as well
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  processes.expect_all_end_well(60'000);
  for (int rank : {0, 1}) {
    EXPECT_EQ(processes.report(rank).result, straitTimeout);
    EXPECT_THAT(processes.report(rank).message, HasSubstr("passed its deadline of 300 ms while waiting for rank 1"));
  }
}

straitResult_t split(straitComm_t comm) {
  straitComm_t part = nullptr;
  return straitCommSplit(comm, 0, 0, &part, nullptr);
}
TEST(Failure, EndsASplit) { fail_beside(split, false); }
TEST(Failure, EndsASplitThatTheFailedRankComesTo) { fail_beside(split, true); }

straitResult_t register_memory(straitComm_t comm) {
  void *memory = nullptr, *registration = nullptr;
  STRAIT_EXPECT_OK(straitMemAlloc(&memory, 4096));
  const straitResult_t result = straitCommRegister(comm, memory, 4096, &registration);
  STRAIT_EXPECT_OK(straitMemFree(memory));
  return result;
}
TEST(Failure, EndsARegistration) { fail_beside(register_memory, false); }

void check_early_farewell(straitComm_t comm, int rank, int ranks) {
  std::vector<std::int32_t> buffer;
  STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 5000, 1, buffer));
  if (rank != 1) {
    EXPECT_EQ(checked_all_reduce(comm, rank, ranks, 5000, 2, buffer), straitRemoteError);
    const std::string message = straitGetLastError(comm);
    EXPECT_THAT(message, HasSubstr("needs rank 1 (host " + host_name()));
    EXPECT_THAT(message, HasSubstr("destroyed its communicator"));
    expect_sticky(comm, straitRemoteError, message);
  }
}
TEST(EarlyFarewell, OfAThread) { run_as_threads(3, check_early_farewell); }
TEST(EarlyFarewell, OfAProcess) { run_as_processes(3, check_early_farewell); }

TEST(EarlyFarewell, OfARankThatNobodyNeedsHarmsNobody) {
  run_as_threads(3, [](straitComm_t comm, int rank, int) {
    if (rank == 2) return;
    for (std::int32_t i = 0; i < 20; ++i) {
      std::int32_t out = i + rank, in = -1;
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitSend(&out, 1, straitInt32, 1 - rank, comm, nullptr));
      STRAIT_EXPECT_OK(straitRecv(&in, 1, straitInt32, 1 - rank, comm, nullptr));
      STRAIT_EXPECT_OK(straitGroupEnd());
      EXPECT_EQ(in, i + 1 - rank);
    }
  });
}

}  // namespace
}  // namespace strait::testing
