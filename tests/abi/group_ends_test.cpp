// What the end of a group has to see to besides its calls: communicators that were aborted in it; over host ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "abi/abi_ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

/// Calls that hang on two communicators, and of which none returns before both are released: as kernels do where one
/// that is to end waits for the whole GPU.
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
      begun_ = true;
      result_ = ncclGroupEnd();
    });
    while (!begun_) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  /// What they return at last; the other ranks have heard why by then.
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
  std::atomic<bool> begun_{false};
  ncclResult_t result_ = ncclSuccess;
  std::jthread caller_;
};

/// Less than a call is waited for that does not return.
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

/// The end of an inner group is none yet.
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

/// What was aborted is ended all the same. (LeakSanitizer watches.)
TEST(AbortsInAGroup, ThatItselfEndsWithAnError) {
  for (const bool simulates : {false, true}) {
    HangingCalls calls;
    const Stopwatch watch;
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommAbort(calls.first[0]));
    NCCL_EXPECT_OK(ncclCommAbort(calls.second[0]));
    if (simulates) {
      EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
    } else {
      EXPECT_EQ(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    }
    EXPECT_LT(watch.elapsed(), soon);
    EXPECT_EQ(calls.end(), ncclRemoteError);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
  }
}

}  // namespace
}  // namespace strait::testing
