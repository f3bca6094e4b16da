#pragma once

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/stacks.hpp"
#include "support/stopwatch.hpp"

/// Forked ranks that a test can kill, stop and query.
namespace strait::testing {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

/// What a rank reports to the test, in shared memory.
struct Report {
  std::atomic<int> joined{0};
  std::atomic<std::uint64_t> completed{0};  ///< operations that ended with the right bits
  std::atomic<int> failed{0};               ///< 1: the members below have been written
  int result = straitSuccess;
  Clock::time_point failed_at;
  char message[1100] = {};

  void fail_with(straitResult_t error, const char* text) {
    failed_at = Clock::now();
    result = error;
    std::strncpy(message, text, sizeof message - 1);
    failed.store(1);
  }
};

class RankProcesses {
 public:
  /// What each of the processes runs. They are killed when the test program ends, for whatever reason.
  using Body = std::function<void(int rank, const straitUniqueId& id, Report& report)>;
  RankProcesses(int ranks, const Body& body) {
    void* memory = mmap(nullptr, sizeof(Report) * static_cast<std::size_t>(ranks), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    reports_ = static_cast<Report*>(memory);
    for (int rank = 0; rank < ranks; ++rank) {
      new (reports_ + rank) Report;
      pids_.push_back(fork_rank([&] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(rank, id_.await(), reports_[rank]);
      }));
    }
    id_.make();
  }
  ~RankProcesses() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) end(static_cast<int>(rank), 0);
    munmap(reports_, sizeof(Report) * pids_.size());
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  const straitUniqueId& id() const { return id_.await(); }
  Report& report(int rank) const { return reports_[rank]; }
  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  int ranks() const { return static_cast<int>(pids_.size()); }
  void signal(int rank, int number) const { kill(pid(rank), number); }

  /// Waits until the rank has ended, and returns its exit status as wait() gives it; -1 if it had to be killed.
  int end(int rank, int timeout_ms) {
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    if (pid <= 0) return -1;
    kill(pid, SIGCONT);
    const int status = wait_for(std::exchange(pid, 0), timeout_ms);
    return status;
  }
  void expect_all_end_well(int timeout_ms = 20'000) {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (pid(rank) <= 0) continue;
      signal(rank, SIGCONT);
      if (!has_ended(pid(rank), timeout_ms)) print_all_stacks();  // before any is killed, which makes other ranks fail
      EXPECT_EQ(end(rank, 0), 0) << "rank " << rank;
    }
  }
  /// Kills a rank that all others wait for: each must fail within a second with `words` in its message.
  void expect_death_is_told(int victim, const std::string& words) {
    const Stopwatch since_death;
    signal(victim, SIGKILL);
    end(victim, 1000);
    expect_all_end_well(10'000);
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(report(rank).result, straitRemoteError);
      EXPECT_THAT(report(rank).message, ::testing::HasSubstr(words));
      EXPECT_LT(since_death.until(report(rank).failed_at), seconds(1));
    }
  }
  bool await_joined(int timeout_ms = 20'000) const {
    return await([&](int rank) { return report(rank).joined.load() != 0; }, timeout_ms);
  }
  bool await(const std::function<bool(int)>& holds, int timeout_ms) const {
    const auto deadline = Clock::now() + milliseconds(timeout_ms);
    for (int rank = 0; rank < ranks(); ++rank)
      while (!holds(rank)) {
        if (Clock::now() > deadline) return false;
        std::this_thread::sleep_for(milliseconds(1));
      }
    return true;
  }

 private:
  void print_all_stacks() const {
    for (const pid_t pid : pids_)
      if (pid > 0 && !has_ended(pid, 0)) print_stacks(pid);
  }

  LateId id_;
  Report* reports_;
  std::vector<pid_t> pids_;
};

/// Joins, or reports the error and returns null.
inline straitComm_t join(const straitUniqueId& id, int rank, int ranks, Report& report,
                         straitConfig_t config = test_config()) {
  straitComm_t comm = nullptr;
  const straitResult_t result = straitCommInitRank(&comm, ranks, &id, rank, &config);
  if (result == straitSuccess)
    report.joined.store(1);
  else
    report.fail_with(result, straitGetLastError(nullptr));
  return comm;
}

/// All-reduces a known pattern of `count` numbers; EXPECTs the right bits if it succeeds.
inline straitResult_t checked_all_reduce(straitComm_t comm, int rank, int ranks, std::size_t count, int seed,
                                         std::vector<std::int32_t>& buffer) {
  buffer.resize(count);
  for (std::size_t i = 0; i < count; ++i) buffer[i] = static_cast<std::int32_t>(i % 1000) * (rank + 1) + seed;
  const straitResult_t result =
      straitAllReduce(buffer.data(), buffer.data(), count, straitInt32, straitSum, comm, nullptr);
  if (result != straitSuccess) return result;
  const int triangle = ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < count; ++i)
    if (buffer[i] != static_cast<std::int32_t>(i % 1000) * triangle + ranks * seed) {
      ADD_FAILURE() << "a completed all-reduce has wrong bits at " << i << " of " << count;
      break;
    }
  return result;
}

/// Expects that after an error every call returns the same error at once, with the same message.
inline void expect_sticky(straitComm_t comm, straitResult_t error, const std::string& message) {
  const Stopwatch watch;
  std::int32_t value = 0;
  straitResult_t kept = straitSuccess;
  EXPECT_EQ(straitAllReduce(&value, &value, 1, straitInt32, straitSum, comm, nullptr), error);
  EXPECT_EQ(straitGetLastError(nullptr), message);
  EXPECT_EQ(straitSend(&value, 1, straitInt32, 0, comm, nullptr), error);
  EXPECT_EQ(straitBarrier(comm, nullptr), error);
  STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &kept));
  EXPECT_EQ(kept, error);
  EXPECT_EQ(straitGetLastError(comm), message);
  EXPECT_LT(watch.elapsed(), milliseconds(800)) << "each of them would wait a second or more for its deadline";
}

inline std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace strait::testing
