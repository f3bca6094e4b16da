// What the end of a group does besides its calls: communicators that are aborted in the group or meanwhile, and threads
// that cannot be started; with host ranks.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "abi/abi_ranks.hpp"
#include "abi/naps.hpp"
#include "support/stopwatch.hpp"

namespace {

/// How many more threads this thread may start; negative: any number.
thread_local int threads_left = -1;

}  // namespace

/// Replaces the C library's function, also for libnccl.so.2.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*body)(void*), void* argument) noexcept {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  return real(thread, attributes, body, argument);
}

namespace strait::testing {
namespace {

/// Ends the group while this thread can start only `threads` others.
ncclResult_t end_group_with(int threads) {
  threads_left = threads;
  const ncclResult_t result = ncclGroupEnd();
  threads_left = -1;
  return result;
}

/// Calls that hang on two communicators. Neither returns before both are released, as with kernels on a GPU, where the
/// end of one may wait for the whole GPU.
class HangingCalls {
 public:
  HangingCalls() {
    NCCL_EXPECT_OK(ncclCommInitAll(first, 2, nullptr));
    NCCL_EXPECT_OK(ncclCommInitAll(second, 2, nullptr));
    caller_ = std::jthread([this] {
      int value = 1;
      NCCL_EXPECT_OK(ncclGroupStart());
      for (ncclComm_t comm : {first[0], second[0]})  // the other ranks never come
        NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
      nap_.watch_for_it();
      result_ = ncclGroupEnd();
    });
    nap_.await();
  }

  /// Waits until the calls have returned, and returns their result. By then the other ranks have been told.
  ncclResult_t end() {
    caller_.join();
    for (ncclComm_t comm : {first[1], second[1]}) {
      ncclResult_t error = ncclSuccess;
      NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
      EXPECT_EQ(error, ncclRemoteError);
      NCCL_EXPECT_OK(ncclCommDestroy(comm));
    }
    return result_;
  }

  ncclComm_t first[2] = {}, second[2] = {};

 private:
  FirstNap nap_;
  ncclResult_t result_ = ncclSuccess;
  std::jthread caller_;
};

/// Less than the time for which an abort waits for a call that does not return.
constexpr auto soon = std::chrono::seconds(5);

TEST(AbortsInAGroup, StopAllBeforeTheyWaitForAny) {
  HangingCalls calls;
  const Stopwatch watch;
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclCommAbort(calls.first[0]));
  NCCL_EXPECT_OK(ncclCommAbort(calls.second[0]));
  NCCL_EXPECT_OK(ncclGroupEnd());
  EXPECT_LT(watch.elapsed(), soon);
  EXPECT_EQ(calls.end(), ncclRemoteError);
}

/// The end of an inner group must not carry out the aborts yet.
TEST(AbortsInAGroup, InGroupsWithin) {
  HangingCalls calls;
  const Stopwatch watch;
  NCCL_EXPECT_OK(ncclGroupStart());
  for (ncclComm_t comm : {calls.first[0], calls.second[0]}) {
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommAbort(comm));
    NCCL_EXPECT_OK(ncclGroupEnd());
  }
  NCCL_EXPECT_OK(ncclGroupEnd());
  EXPECT_LT(watch.elapsed(), soon);
  EXPECT_EQ(calls.end(), ncclRemoteError);
}

/// Communicators aborted in a group that ends with an error must end all the same. (LeakSanitizer checks.)
TEST(AbortsInAGroup, ThatItselfEndsWithAnError) {
  for (const bool simulates : {false, true}) {
    HangingCalls calls;
    const Stopwatch watch;
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommAbort(calls.first[0]));
    NCCL_EXPECT_OK(ncclCommAbort(calls.second[0]));
    if (simulates) {
      EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidArgument);
    } else {
      EXPECT_EQ(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    }
    EXPECT_LT(watch.elapsed(), soon);
    EXPECT_EQ(calls.end(), ncclRemoteError);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
  }
}

/// When the abort comes, the group's split is over and its operation hangs. The abort must end the operation, and what
/// still runs must be waited for.
TEST(AbortsFromOutside, OfACommunicatorThatTheGroupSplitsToo) {
  ncclComm_t comms[2] = {}, parts[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  FirstNap nap;
  ncclResult_t result = ncclSuccess;
  std::jthread caller([&] {
    nap.watch_for_it();
    int value = 1;
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommSplit(comms[0], 0, 0, &parts[0], nullptr));
    NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], nullptr));  // rank 1 never calls
    result = ncclGroupEnd();
  });
  NCCL_EXPECT_OK(ncclCommSplit(comms[1], 0, 1, &parts[1], nullptr));
  nap.await();
  NCCL_EXPECT_OK(ncclCommAbort(comms[0]));
  caller.join();
  EXPECT_EQ(result, ncclRemoteError);
  for (ncclComm_t comm : parts) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  NCCL_EXPECT_OK(ncclCommDestroy(comms[1]));
}

void expect_told_and_over(ncclResult_t ended) {
  EXPECT_EQ(ended, ncclSystemError);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("ulimit -u"), std::string::npos) << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
}

/// A thread ends without ncclGroupEnd, for example because of an exception. Whoever waits for the communicators that it
/// was to set up must be told.
TEST(MissingEnds, OfThreadsAreToldToOthers) {
  for (const bool aborts : {false, true}) {
    ncclComm_t comm = nullptr, fresh = nullptr, part = nullptr;
    NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
    int value = 1;
    ncclWindow_t window = nullptr;
    std::jthread([&] {
      ncclUniqueId id;
      NCCL_EXPECT_OK(ncclGetUniqueId(&id));
      NCCL_EXPECT_OK(ncclGroupStart());
      NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
      NCCL_EXPECT_OK(ncclCommInitRank(&fresh, 1, id, 0));
      NCCL_EXPECT_OK(ncclCommSplit(comm, 0, 0, &part, nullptr));
      NCCL_EXPECT_OK(ncclCommWindowRegister(comm, &value, sizeof value, &window, NCCL_WIN_COLL_SYMMETRIC));
      if (aborts) std::jthread([&] { NCCL_EXPECT_OK(ncclCommAbort(comm)); }).join();
    }).join();
    for (ncclComm_t made : {fresh, part}) {
      ncclResult_t state = ncclInProgress;
      NCCL_EXPECT_OK(ncclCommGetAsyncError(made, &state));
      ASSERT_EQ(state, ncclInvalidUsage);
      EXPECT_NE(std::string(ncclGetLastError(made)).find("ncclGroupEnd is missing"), std::string::npos);
      NCCL_EXPECT_OK(ncclCommDestroy(made));
    }
    if (aborts) continue;
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, window));
    NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    EXPECT_EQ(value, 1);
    NCCL_EXPECT_OK(ncclCommDestroy(comm));
  }
}

/// The inits that got a thread wait for the others, which do not come.
TEST(MissingThreads, OfInitsAreToldOfAndNobodyWaitsForThem) {
  for (const int blocking : {1, 0})
    for (const int threads : {0, 1}) {
      ncclUniqueId id;
      NCCL_EXPECT_OK(ncclGetUniqueId(&id));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking;
      ncclComm_t comms[2] = {};
      NCCL_EXPECT_OK(ncclGroupStart());
      for (int rank = 0; rank < 2; ++rank) NCCL_EXPECT_OK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
      const Stopwatch watch;
      expect_told_and_over(end_group_with(threads));
      EXPECT_EQ(await_ready(comms[0]), threads == 0 ? ncclSystemError : ncclRemoteError);
      EXPECT_EQ(await_ready(comms[1]), ncclSystemError);
      for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
      EXPECT_LT(watch.elapsed(), soon);
    }
}

/// The old communicators tell the ranks whose split is already under way.
TEST(MissingThreads, OfSplitsAreToldOfAndNobodyWaitsForThem) {
  ncclComm_t comms[2] = {}, parts[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) NCCL_EXPECT_OK(ncclCommSplit(comms[rank], 0, rank, &parts[rank], nullptr));
  const Stopwatch watch;
  expect_told_and_over(end_group_with(1));
  EXPECT_EQ(await_ready(parts[0]), ncclRemoteError);
  EXPECT_EQ(await_ready(parts[1]), ncclSystemError);
  for (ncclComm_t comm : parts) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  EXPECT_LT(watch.elapsed(), soon);
}

/// Ranks on other threads or in other processes are already in the split.
TEST(MissingThreads, OfASplitAreToldToRanksOutsideTheGroup) {
  ncclComm_t comms[2] = {}, parts[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  const Stopwatch watch;
  {
    const std::jthread other([&] { EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &parts[0], nullptr), ncclRemoteError); });
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommSplit(comms[1], 0, 1, &parts[1], nullptr));
    expect_told_and_over(end_group_with(0));
  }
  EXPECT_LT(watch.elapsed(), soon);
  for (ncclComm_t comm : {comms[0], comms[1], parts[1]}) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

TEST(MissingThreads, OfWindowsAreToldOfAndNobodyWaitsForThem) {
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  std::vector<int> values(2000);
  ncclWindow_t windows[2] = {};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (std::size_t rank = 0; rank < 2; ++rank)
    NCCL_EXPECT_OK(ncclCommWindowRegister(comms[rank], &values[1000 * rank], 4000, &windows[rank], 1));
  const Stopwatch watch;
  EXPECT_NE(end_group_with(1), ncclSuccess);  // which rank's error is not specified
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
  for (int rank = 0; rank < 2; ++rank) {
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comms[rank], windows[rank]));
    NCCL_EXPECT_OK(ncclCommDestroy(comms[rank]));
  }
  EXPECT_LT(watch.elapsed(), soon);
}

}  // namespace
}  // namespace strait::testing
