// GPU ranks that die, stay away, abort or make a different call, and GPUs that fail: waiting kernels must end, and
// every rank must be told why.
#include "gpu/device_fault_ranks.hpp"

#include <vector>

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceFaults, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Islands" : "Alike"; });

/// Makes all-reduces until one fails. At most one call is enqueued at a time.
straitResult_t run_until_failure(const DeviceSide& side, std::size_t count, Report& report) {
  for (;;) {
    const straitResult_t result = side.all_reduce(count);
    if (result != straitSuccess) return result;
    EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
    report.completed.fetch_add(1);
  }
}

/// The ranks without the dead one add up a one each. Everything is ordered by the stream, because the data of a plain
/// cudaMemcpy() may arrive after the kernel has begun: the peers would get the old values, while this rank, which reads
/// its input again after receiving theirs, would still compute the right sum.
void go_on_without(int dead, int ranks, DeviceSide& side) {
  straitComm_t smaller = nullptr;
  STRAIT_EXPECT_OK(straitCommShrink(side.comm, &dead, 1, &smaller, nullptr));
  STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  side.comm = smaller;
  constexpr std::size_t count = 100'000, count_bytes = count * sizeof(std::int32_t);
  std::vector<std::int32_t> values(count, 1);
  EXPECT_EQ(cudaMemcpyAsync(side.data, values.data(), count_bytes, cudaMemcpyDefault, side.stream), cudaSuccess);
  STRAIT_EXPECT_OK(side.all_reduce(count));
  EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
  straitResult_t error = straitInternalError;
  STRAIT_EXPECT_OK(straitCommGetAsyncError(side.comm, &error));
  EXPECT_EQ(error, straitSuccess) << straitGetLastError(side.comm);
  EXPECT_EQ(cudaMemcpyAsync(values.data(), side.data, count_bytes, cudaMemcpyDefault, side.stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
  const auto wrong = std::find_if(values.begin(), values.end(), [&](std::int32_t each) { return each != ranks - 1; });
  if (wrong == values.end()) return;
  const char *transport = nullptr, *why = nullptr;
  STRAIT_EXPECT_OK(straitCommGetTransport(side.comm, &transport, &why));
  ADD_FAILURE() << std::count(values.begin(), values.end(), ranks - 1) << " of " << count << " are " << ranks - 1
                << "; the first other one is number " << wrong - values.begin() << ", " << *wrong << ", the last one "
                << values.back() << "; by " << transport << " (" << why
                << "); the thread's last error: " << straitGetLastError(side.comm);
}

TEST_P(DeviceFaults, AKilledRankIsNamedWithinASecondAndTheOthersGoOn) {
  for (const std::size_t count : {std::size_t{16}, std::size_t{10'000'000}}) {
    RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
      DeviceSide side(id, rank, ranks_, report);
      if (side.comm == nullptr) return;
      const straitResult_t result = run_until_failure(side, count, report);
      report.fail_with(result, straitGetLastError(side.comm));
      EXPECT_EQ(side.all_reduce(count), result) << "the error is sticky";
      go_on_without(1, ranks_, side);
      STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
    });
    ASSERT_TRUE(processes.await_joined());
    ASSERT_TRUE(processes.await([&](int rank) { return processes.report(rank).completed.load() > 20; }, 20'000));
    const Stopwatch since_death;
    processes.signal(1, SIGKILL);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(processes.end(rank, 20'000), 0) << "rank " << rank;
      const Report& report = processes.report(rank);
      EXPECT_EQ(report.result, straitRemoteError) << report.message;
      EXPECT_THAT(report.message, AllOf(HasSubstr("rank 1"), HasSubstr("died")));
      EXPECT_LT(since_death.until(report.failed_at), seconds(1));
    }
    processes.end(1, 1000);
  }
}

TEST_P(DeviceFaults, AnAbortEndsTheKernelsThatWait) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    std::jthread aborter;
    if (rank == 0) {
      aborter = std::jthread([&] {
        std::this_thread::sleep_for(milliseconds(200));
        STRAIT_EXPECT_OK(straitCommAbort(side.comm));
      });
    }
    const Stopwatch watch;
    if (rank != ranks_ - 1) STRAIT_EXPECT_OK(side.all_reduce(1000));  // the last rank stays away
    const straitResult_t error = side.await_error(5000);
    EXPECT_LT(watch.elapsed(), milliseconds(1200));
    report.fail_with(error, straitGetLastError(side.comm));
    EXPECT_EQ(side.all_reduce(1000), error);
    STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks_; ++rank) EXPECT_EQ(processes.report(rank).result, straitAborted);
}

TEST_P(DeviceFaults, CallsThatDifferAreShownToAll) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    // If the other rank's call came first, the call itself already returns the mismatch.
    const straitResult_t called = side.all_reduce(rank == 0 ? 1000 : 2000);
    EXPECT_TRUE(called == straitSuccess || called == straitMismatch) << straitGetLastError(side.comm);
    const straitResult_t error = side.await_error(5000);
    report.fail_with(error, straitGetLastError(side.comm));
    STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks_; ++rank) {
    EXPECT_EQ(processes.report(rank).result, straitMismatch);
    EXPECT_THAT(processes.report(rank).message, AllOf(HasSubstr("count 1000"), HasSubstr("count 2000")));
  }
}

/// Graph launches post no signature on the host, because graphs may be launched at any time. All ranks launch the same
/// graph first, then rank 0 launches a different one.
TEST_P(DeviceFaults, ReplayedCallsThatDifferAreShownToAll) {
  struct Case {
    std::size_t count;
    straitRedOp_t op;
    const char *words, *other_words;
  };
  for (const Case& other : {Case{2000, straitSum, "count 1000, int32, sum", "count 2000, int32, sum"},
                            Case{1000, straitMax, "count 1000, int32, sum", "count 1000, int32, max"}}) {
    RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
      const DeviceSide side(id, rank, ranks_, report);
      if (side.comm == nullptr) return;
      const cudaGraphExec_t alike = side.captured(1000), own = rank == 0 ? side.captured(other.count, other.op) : alike;
      for (int replay = 0; replay < 100; ++replay) EXPECT_EQ(cudaGraphLaunch(alike, side.stream), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
      straitResult_t error = straitInternalError;
      STRAIT_EXPECT_OK(straitCommGetAsyncError(side.comm, &error));
      EXPECT_EQ(error, straitSuccess) << straitGetLastError(side.comm);
      const Stopwatch watch;
      EXPECT_EQ(cudaGraphLaunch(own, side.stream), cudaSuccess);
      error = side.await_error(10'000);
      EXPECT_LT(watch.elapsed(), seconds(2));
      report.fail_with(error, straitGetLastError(side.comm));
      STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
    });
    processes.expect_all_end_well();
    for (int rank = 0; rank < ranks_; ++rank) {
      EXPECT_EQ(processes.report(rank).result, straitMismatch);
      EXPECT_THAT(processes.report(rank).message,
                  AllOf(HasSubstr(other.words), HasSubstr(other.other_words), HasSubstr("number 101 ")));
    }
  }
}

/// Returns a graph of calls in which ranks have different parts; with islands, such a call is one launch or two. In the
/// last call only ranks 0 and 1 have data.
cudaGraphExec_t captured_exchanges(const DeviceSide& side, int rank, int ranks) {
  constexpr std::size_t block = std::size_t{1} << 18;
  std::int32_t* const to = side.data + DeviceSide::bytes / 2 / sizeof(std::int32_t);
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks)), offsets(counts.size());
  if (rank < 2) counts[static_cast<std::size_t>(1 - rank)] = block;
  return side.captured([&] {
    STRAIT_EXPECT_OK(straitGather(side.data, to, block, straitInt32, 1, side.comm, side.stream));
    STRAIT_EXPECT_OK(straitScatter(side.data, to, block, straitInt32, ranks - 1, side.comm, side.stream));
    STRAIT_EXPECT_OK(straitAllToAll(side.data, to, block, straitInt32, side.comm, side.stream));
    STRAIT_EXPECT_OK(straitAllToAllv(side.data, counts.data(), offsets.data(), to, counts.data(), offsets.data(),
                                     straitInt32, side.comm, side.stream));
  });
}

TEST_P(DeviceFaults, CallsInWhichRanksHaveOtherPartsAreCountedAlike) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    const cudaGraphExec_t exchanges = captured_exchanges(side, rank, ranks_);
    const cudaGraphExec_t sum = side.captured(rank == 0 ? 1000 : 2000);
    for (int replay = 0; replay < 2; ++replay) EXPECT_EQ(cudaGraphLaunch(exchanges, side.stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(sum, side.stream), cudaSuccess);
    const straitResult_t error = side.await_error(10'000);
    report.fail_with(error, straitGetLastError(side.comm));
    STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks_; ++rank) {
    EXPECT_EQ(processes.report(rank).result, straitMismatch);
    EXPECT_THAT(processes.report(rank).message,
                AllOf(HasSubstr("count 1000"), HasSubstr("count 2000"), HasSubstr("number 9 ")));
  }
}

/// A call in a graph waits for the last rank, and so does the next call, which is outside of graphs.
TEST_P(DeviceFaults, TheFlightRecorderKnowsWhatGpusHaveStartedAndFinished) {
  Meeting meeting(ranks_);
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    const bool is_late = rank == ranks_ - 1;
    const cudaGraphExec_t graph = side.captured(1000);
    for (std::uint64_t number = 1; number <= 2; ++number) {
      const auto launch = [&] {
        if (number == 1)
          EXPECT_EQ(cudaGraphLaunch(graph, side.stream), cudaSuccess);
        else
          STRAIT_EXPECT_OK(side.all_reduce(500));
      };
      if (!is_late) launch();
      std::this_thread::sleep_for(milliseconds(300));
      const auto waiting = side.record(rank);
      EXPECT_EQ(waiting.value("last_started", 0u), is_late ? number - 1 : number);
      if (is_late) {
        EXPECT_EQ(waiting.value("last_finished", 0u), number - 1);
      } else if (number == 1) {  // the end of a captured call is not counted
        EXPECT_TRUE(waiting.at("started").back().at("finished").is_null());
      } else {
        EXPECT_EQ(waiting.at("last_finished"), number - 1);
        EXPECT_EQ(waiting.at("started").back().at("finished"), false);
      }
      meet();
      if (is_late) launch();
      EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
      std::this_thread::sleep_for(milliseconds(100));
      const auto done = side.record(rank);
      EXPECT_EQ(done.value("last_finished", 0u), number);
      EXPECT_EQ(done.at("started").back().at("finished"), true);
      EXPECT_EQ(done.at("started").back().at("call"),
                number == 1 ? "all-reduce(count 1000, int32, sum)" : "all-reduce(count 500, int32, sum)");
      meet();
    }
    STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  });
  processes.expect_all_end_well(60'000);
}

/// The last dump of a rank that waited in vain must show its call as unfinished, though its kernel has given up since.
TEST_P(DeviceFaults, AfterAnAbortTheFlightRecorderKnowsWhatHadNotFinished) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    if (rank != ranks_ - 1) {
      STRAIT_EXPECT_OK(side.all_reduce(1000));
      STRAIT_EXPECT_OK(side.all_reduce(2000));  // its kernel gives up as soon as it starts
    }
    std::this_thread::sleep_for(milliseconds(300));
    if (rank == 0) STRAIT_EXPECT_OK(straitCommAbort(side.comm));
    EXPECT_EQ(side.await_error(5000), straitAborted);
    if (rank != ranks_ - 1) {
      const auto record = side.record(rank);
      EXPECT_EQ(record.at("last_started"), 1);
      EXPECT_EQ(record.at("last_finished"), 0);
      EXPECT_EQ(record.at("started").back().at("finished"), false);
    }
    STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  });
  processes.expect_all_end_well();
}

/// A GPU fails as if by the program's own faulty kernel. Rank 1 does not notice, because it waits for something else.
/// Both the ranks that wait for it and rank 1 itself must be told.
TEST_P(DeviceFaults, AFailedGpuIsNamed) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    STRAIT_EXPECT_OK(side.all_reduce(1000));
    EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
    char* const nowhere = reinterpret_cast<char*>(side.data) + (std::size_t{1} << 42);
    void* const data = rank == 1 ? nowhere : reinterpret_cast<char*>(side.data);
    STRAIT_EXPECT_OK(straitAllReduce(data, data, 1000, straitInt32, straitSum, side.comm, side.stream));
    const auto began = Clock::now();
    straitResult_t error = straitSuccess;
    while (error == straitSuccess && Clock::now() - began < milliseconds(10'000)) {
      STRAIT_EXPECT_OK(straitCommGetAsyncError(side.comm, &error));
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_LT(Clock::now() - began, milliseconds(3'000));
    report.fail_with(error, straitGetLastError(side.comm));
    (void)straitCommDestroy(side.comm);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks_; ++rank) {
    EXPECT_EQ(processes.report(rank).result, straitCudaError) << "rank " << rank;
    EXPECT_THAT(processes.report(rank).message, AllOf(HasSubstr("of rank 1"), HasSubstr("has failed")));
  }
}

TEST_P(DeviceFaults, ADeadlineNamesTheRankThatIsMissing) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report, 400);
    if (side.comm == nullptr) return;
    if (rank != 1) {
      STRAIT_EXPECT_OK(side.all_reduce(1000));
      EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
      straitResult_t at_once = straitSuccess;
      STRAIT_EXPECT_OK(straitCommGetAsyncError(side.comm, &at_once));
      EXPECT_EQ(at_once, straitTimeout);
    }
    const straitResult_t error = side.await_error(5000);
    report.fail_with(error, straitGetLastError(side.comm));
    STRAIT_EXPECT_OK(straitCommDestroy(side.comm));
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks_; ++rank) {
    EXPECT_EQ(processes.report(rank).result, straitTimeout);
    EXPECT_THAT(processes.report(rank).message, HasSubstr("400 ms"));
    // With islands, the first rank to report may wait for a rank that in turn waits for rank 1.
    if (!GetParam()) {
      EXPECT_THAT(processes.report(rank).message, HasSubstr("rank 1"));
    }
  }
}

}  // namespace
}  // namespace strait::testing
