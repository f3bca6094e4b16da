#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "strait/strait.h"

/// Runs ranks for tests of the public interface, as threads of this process or as forked processes.
namespace strait::testing {

/// What one rank runs. Its EXPECTs count, also in a forked process.
using RankBody = std::function<void(straitComm_t comm, int rank, int ranks)>;

#define STRAIT_EXPECT_OK(call)                                                               \
  do {                                                                                       \
    const straitResult_t strait_result = (call);                                             \
    EXPECT_EQ(strait_result, straitSuccess) << #call << ": " << straitGetLastError(nullptr); \
  } while (false)

inline straitConfig_t test_config() {
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.init_timeout_ms = 20000;
  config.timeout_ms = 60000;
  return config;
}

inline void join_and_run(const straitUniqueId& id, int rank, int ranks, const RankBody& body) {
  const straitConfig_t config = test_config();
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
  if (comm == nullptr) return;
  body(comm, rank, ranks);
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// A barrier for the ranks of a test, threads or processes, that is independent of what is tested.
class Meeting {
 public:
  explicit Meeting(int ranks)
      : ranks_(static_cast<unsigned>(ranks)),
        arrived_(new (mmap(nullptr, sizeof(std::atomic<unsigned>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0)) std::atomic<unsigned>(0)) {
    current = this;
  }
  ~Meeting() {
    current = nullptr;
    munmap(arrived_, sizeof *arrived_);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Waits until every rank has called this as often as the caller. Fails the test if one has not within 60 seconds.
  void wait() {
    const unsigned here = arrived_->fetch_add(1), all = (here / ranks_ + 1) * ranks_;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (arrived_->load() < all) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "of " << ranks_ << " ranks only " << arrived_->load() % ranks_ << " came to a meeting";
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  static inline Meeting* current = nullptr;  ///< the meeting of the ranks that run now

 private:
  unsigned ranks_;
  std::atomic<unsigned>* arrived_;
};
/// Waits until all ranks of run_as_threads() or run_as_processes() have called this.
inline void meet() { Meeting::current->wait(); }

inline void run_as_threads(int ranks, const RankBody& body) {
  Meeting meeting(ranks);
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { join_and_run(id, rank, ranks, body); });
}

/// Forks a rank. It exits with 0 if all its EXPECTs held, otherwise with 1.
inline pid_t fork_rank(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  body();
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// Returns whether a child ends within `timeout_ms`. Its status can still be collected afterwards.
inline bool has_ended(pid_t child, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Returns the status of a child as wait() gives it, or -1 if it did not end in time; it is then killed.
inline int wait_for(pid_t child, int timeout_ms) {
  const bool ended = has_ended(child, timeout_ms);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return ended ? status : -1;
}

/// A unique id for processes that are forked before the id is made. Making it starts a thread that serves the id, and a
/// process with threads must not fork ranks: a lock of the allocator (above all a sanitizer's) may be held at that
/// moment.
class LateId {
 public:
  LateId()
      : shared_(static_cast<Shared*>(
            mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~LateId() { munmap(shared_, sizeof(Shared)); }
  LateId(const LateId&) = delete;
  LateId& operator=(const LateId&) = delete;

  const straitUniqueId& make() {
    STRAIT_EXPECT_OK(straitGetUniqueId(&shared_->id));
    shared_->is_made.store(true);
    return shared_->id;
  }
  const straitUniqueId& await() const {
    while (!shared_->is_made.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return shared_->id;
  }

 private:
  struct Shared {
    straitUniqueId id;
    std::atomic<bool> is_made;
  };
  Shared* shared_;
};

inline void run_as_processes(int ranks, const RankBody& body) {
  Meeting meeting(ranks);
  LateId id;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.push_back(fork_rank([&] { join_and_run(id.await(), rank, ranks, body); }));
  id.make();
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)], 120000), 0) << "rank " << rank;
}

}  // namespace strait::testing
