#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "nccl/nccl_abi.h"
#include "support/ranks.hpp"
#include "support/stopwatch.hpp"

/// Runs ranks for tests of the drop-in libnccl.so.2. They join through strait_over_nccl.cpp.
namespace strait::testing {

#define NCCL_EXPECT_OK(call)                                                           \
  do {                                                                                 \
    const ncclResult_t nccl_result = (call);                                           \
    EXPECT_EQ(nccl_result, ncclSuccess) << #call << ": " << ncclGetLastError(nullptr); \
  } while (false)

using NcclBody = std::function<void(ncclComm_t comm, int rank, int ranks)>;

inline RankBody over_nccl(NcclBody body) {
  return [body = std::move(body)](straitComm_t comm, int rank, int ranks) {
    body(reinterpret_cast<ncclComm_t>(comm), rank, ranks);
  };
}
inline void on_threads(int ranks, NcclBody body) { run_as_threads(ranks, over_nccl(std::move(body))); }
inline void on_processes(int ranks, NcclBody body) { run_as_processes(ranks, over_nccl(std::move(body))); }

/// Polls until the communicator is no longer in progress, as programs do. Returns its state: ncclInProgress after 20 s.
inline ncclResult_t await_ready(ncclComm_t comm) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

/// Calls `make` on a thread: it makes a communicator with ranks that never come. This thread, which already has the
/// handle, aborts it, and the call must return.
inline void expect_abort_ends(const std::function<ncclResult_t(ncclComm_t* made)>& make) {
  std::atomic<ncclComm_t*> place{nullptr};
  ncclResult_t result = ncclSuccess;
  std::jthread caller([&] {
    ncclComm_t made = nullptr;
    place = &made;
    result = make(&made);
  });
  while (place == nullptr || *const_cast<ncclComm_t volatile*>(place.load()) == nullptr) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Stopwatch since_abort;
  NCCL_EXPECT_OK(ncclCommAbort(*place.load()));
  EXPECT_LT(since_abort.elapsed(), std::chrono::seconds(5));
  caller.join();
  EXPECT_EQ(result, ncclRemoteError);
}

}  // namespace strait::testing
