// GPU ranks that die, stay away, abort or call something else: kernels that wait end, and every rank is told why.
#include <cuda_runtime.h>

#include <algorithm>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "fault/rank_processes.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int gpus_in_a_child() {
  // A process that has used CUDA must not fork ranks that will.
  const int status = wait_for(fork_rank([] {
                                int devices = 0;
                                _exit(cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0);
                              }),
                              60'000);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// All ranks of one kind, or with `true` in islands.
class DeviceFaults : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const int gpus = gpus_in_a_child();
    if (gpus == 0) GTEST_SKIP() << "needs a GPU, here is none";
    ranks_ = std::clamp(gpus, GetParam() ? 3 : 2, 4);
    setenv("STRAIT_SHARE_GPUS", gpus < ranks_ ? "1" : "0", 1);
    if (!GetParam()) return;
    if (std::getenv("STRAIT_P2P") != nullptr) GTEST_SKIP() << "STRAIT_P2P is set";
    setenv("STRAIT_P2P", ranks_ == 3 ? "0-1" : "0-1,2-3", 1);
    is_set_ = true;
  }
  void TearDown() override {
    if (is_set_) unsetenv("STRAIT_P2P");
    unsetenv("STRAIT_SHARE_GPUS");
  }
  int ranks_ = 0;

 private:
  bool is_set_ = false;
};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceFaults, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Islands" : "Alike"; });

/// A rank's stream, memory and communicator; the communicator may be null.
struct DeviceSide {
  DeviceSide(const straitUniqueId& id, int rank, int ranks, Report& report, std::int64_t timeout_ms = 0) {
    int gpus = 0;
    EXPECT_EQ(cudaGetDeviceCount(&gpus), cudaSuccess);
    straitConfig_t config = test_config();
    config.device = rank % gpus;  // where there are fewer, ranks share them
    EXPECT_EQ(cudaSetDevice(config.device), cudaSuccess);
    config.timeout_ms = timeout_ms;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data, 0, bytes, stream), cudaSuccess);
    comm = join(id, rank, ranks, report, config);
  }
  straitResult_t all_reduce(std::size_t count, straitRedOp_t op = straitSum) const {
    return straitAllReduce(data, data, count, straitInt32, op, comm, stream);
  }
  /// The same as a graph.
  cudaGraphExec_t captured(std::size_t count, straitRedOp_t op = straitSum) const {
    return captured([&] { STRAIT_EXPECT_OK(all_reduce(count, op)); });
  }
  /// What `record` gives to the stream.
  template <class Record>
  requires std::invocable<Record> cudaGraphExec_t captured(Record&& record)
  const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    record();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return ready;
  }
  /// What the flight recorder knows of this rank.
  nlohmann::json record(int rank) const {
    const std::string path = "/tmp/strait_faults_" + std::to_string(getpid());
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, path.c_str()));
    std::ifstream file(path);
    auto json = nlohmann::json::parse(file);
    std::filesystem::remove(path);
    return json.at("seen").at(static_cast<std::size_t>(rank));
  }
  /// Waits for the stream, then until the communicator knows of a failure.
  straitResult_t await_error(int timeout_ms) const {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    straitResult_t error = straitSuccess;
    const auto deadline = Clock::now() + milliseconds(timeout_ms);
    while (error == straitSuccess && Clock::now() < deadline) {
      STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
      std::this_thread::sleep_for(milliseconds(1));
    }
    return error;
  }

  static constexpr std::size_t bytes = std::size_t{64} << 20;
  cudaStream_t stream = nullptr;
  std::int32_t* data = nullptr;
  straitComm_t comm = nullptr;
};

/// All-reduces without end until one fails; the stream is never far behind.
straitResult_t run_until_failure(const DeviceSide& side, std::size_t count, Report& report) {
  for (;;) {
    const straitResult_t result = side.all_reduce(count);
    if (result != straitSuccess) return result;
    EXPECT_EQ(cudaStreamSynchronize(side.stream), cudaSuccess);
    report.completed.fetch_add(1);
  }
}

/// The ranks but for one, which died, add up a one each. All in the order of the stream, for which what cudaMemcpy()
/// brings may come too late: the peers get what was there before, and this rank, which reads its own once more when
/// they have sent theirs, the right sum all the same.
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
    // A rank that comes late is told by the call itself.
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

/// Calls that nobody posts: graphs may be launched at any time. All ranks begin alike, then rank 0 launches another
/// one.
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

/// Calls of which ranks have other parts, in a graph: where there are islands they are one launch, or two. In the last
/// one only ranks 0 and 1 have any.
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

/// Of a call in a graph that waits for the last rank, and of the one after it, outside of graphs.
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
      } else if (number == 1) {  // in a graph nothing counts its end
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

/// The last dump of a rank that waited in vain: its call had not finished, though its kernel has given up since.
TEST_P(DeviceFaults, AfterAnAbortTheFlightRecorderKnowsWhatHadNotFinished) {
  RankProcesses processes(ranks_, [&](int rank, const straitUniqueId& id, Report& report) {
    const DeviceSide side(id, rank, ranks_, report);
    if (side.comm == nullptr) return;
    if (rank != ranks_ - 1) {
      STRAIT_EXPECT_OK(side.all_reduce(1000));
      STRAIT_EXPECT_OK(side.all_reduce(2000));  // gives up as soon as it starts
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
    // Across islands a rank may be the first to tell that waits for one that waits for rank 1.
    if (!GetParam()) {
      EXPECT_THAT(processes.report(rank).message, HasSubstr("rank 1"));
    }
  }
}

}  // namespace
}  // namespace strait::testing
