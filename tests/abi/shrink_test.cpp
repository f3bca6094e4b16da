// ncclCommShrink: ranks go on without others, from communicators that work and from those that have failed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "abi/check_sum.hpp"
#include "abi/naps.hpp"

namespace strait::testing {
namespace {

using Values = std::vector<std::int32_t>;

/// The excluded ranks take no part in it, and the old communicator remains usable.
TEST(Shrink, LeavesRanksOut) {
  on_processes(4, [](ncclComm_t comm, int rank, int) {
    int excluded[] = {2, 0};
    ncclComm_t less = comm;
    if (rank == 1 || rank == 3) {
      NCCL_EXPECT_OK(ncclCommShrink(comm, excluded, 2, &less, nullptr, NCCL_SHRINK_DEFAULT));
      int count = 0, own = -1;
      NCCL_EXPECT_OK(ncclCommCount(less, &count));
      NCCL_EXPECT_OK(ncclCommUserRank(less, &own));
      EXPECT_EQ(count, 2);
      EXPECT_EQ(own, rank / 2);
      check_sum(less, rank, {1, 3});
      NCCL_EXPECT_OK(ncclCommDestroy(less));
    }
    check_sum(comm, rank, all_of(4));
  });
}

/// The first of the remaining ranks cannot listen for the others: they must be told, and none may wait for its
/// unique id.
TEST(Shrink, FailsOnAllRanksWhereTheFirstCannotStartIt) {
  on_processes(3, [](ncclComm_t comm, int rank, int) {
    int excluded[] = {0};
    ncclComm_t less = comm;
    if (rank == 1) setenv("STRAIT_SOCKET_IFNAME", "=nowhere0", 1);
    if (rank != 0) {
      const ncclResult_t result = ncclCommShrink(comm, excluded, 1, &less, nullptr, NCCL_SHRINK_DEFAULT);
      const std::string text = ncclGetLastError(nullptr);
      EXPECT_NE(result, ncclSuccess);
      EXPECT_NE(text.find("nowhere0"), std::string::npos) << text;
      EXPECT_EQ(less, nullptr);
      EXPECT_NE(text.find("ranks 1, 2 cannot go on"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1 cannot join"), std::string::npos) << text;
    }
    check_sum(comm, rank, all_of(3));
    if (rank == 1) unsetenv("STRAIT_SOCKET_IFNAME");
    if (rank != 0) {
      NCCL_EXPECT_OK(ncclCommShrink(comm, excluded, 1, &less, nullptr, NCCL_SHRINK_DEFAULT));
      check_sum(less, rank, {1, 2});
      NCCL_EXPECT_OK(ncclCommDestroy(less));
    }
  });
}

TEST(Shrink, ToOneRankAndInTheBackground) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[3] = {}, two[2] = {}, one = nullptr;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  int excluded[] = {1, 0};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ncclCommShrink(comms[2 * i], excluded, 1, &two[i], nullptr, 0), ncclInProgress);
  for (ncclComm_t comm : two) EXPECT_EQ(await_ready(comm), ncclSuccess) << ncclGetLastError(comm);
  EXPECT_EQ(await_ready(comms[2]), ncclSuccess);
  EXPECT_EQ(ncclCommShrink(comms[2], excluded, 2, &one, nullptr, 0), ncclInProgress);
  EXPECT_EQ(await_ready(one), ncclSuccess) << ncclGetLastError(one);
  check_sum(one, 2, {2});
  NCCL_EXPECT_OK(ncclCommDestroy(one));
  for (ncclComm_t comm : two) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  EXPECT_EQ(await_ready(comms[0]), ncclSuccess);
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// Rank 2 never joins a call in which the others wait: they end the call and go on without rank 2.
TEST(Shrink, EndsWhatRunsAndGoesOn) {
  on_threads(3, [](ncclComm_t comm, int rank, int) {
    if (rank == 2) {
      meet();
      return meet();
    }
    FirstNap nap;
    ncclResult_t result = ncclSuccess;
    std::jthread stuck([&] {
      nap.watch_for_it();
      Values values(10);
      result = ncclAllReduce(values.data(), values.data(), 10, ncclInt32, ncclSum, comm, nullptr);
    });
    nap.await();
    meet();  // a call that begins after the other rank has ended it would not wait
    int excluded[] = {2};
    ncclComm_t less = nullptr;
    NCCL_EXPECT_OK(ncclCommShrink(comm, excluded, 1, &less, nullptr, NCCL_SHRINK_ABORT));
    stuck.join();
    EXPECT_EQ(result, ncclRemoteError);
    ncclResult_t state = ncclInternalError;  // PyTorch waits until this is success
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    check_sum(less, rank, {0, 1});
    NCCL_EXPECT_OK(ncclCommDestroy(less));
    Values values(1);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
    meet();
  });
}

/// Some programs revoke first: the communicator has then failed on all ranks, and can only be shrunk.
TEST(Shrink, AfterARevoke) {
  on_processes(3, [](ncclComm_t comm, int rank, int) {
    if (rank == 0) NCCL_EXPECT_OK(ncclCommRevoke(comm, 0));
    Values values(1);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr),
              rank == 0 ? ncclInvalidUsage : ncclRemoteError);
    int excluded[] = {1};
    ncclComm_t less = nullptr;
    if (rank == 1) return;
    NCCL_EXPECT_OK(ncclCommShrink(comm, excluded, 1, &less, nullptr, NCCL_SHRINK_DEFAULT));
    check_sum(less, rank, {0, 2});
    NCCL_EXPECT_OK(ncclCommDestroy(less));
  });
}

/// No other rank calls it. Aborting the new communicator ends the shrink, and the old one must stay as it was.
TEST(Shrink, IsEndedByAnAbort) {
  on_threads(3, [](ncclComm_t comm, int rank, int) {
    if (rank == 1)
      expect_abort_ends([&](ncclComm_t* less) {
        int excluded[] = {2};
        return ncclCommShrink(comm, excluded, 1, less, nullptr, NCCL_SHRINK_DEFAULT);
      });
    check_sum(comm, rank, all_of(3));
  });
}

TEST(Shrink, RefusesListsThatAreWrong) {
  on_threads(1, [](ncclComm_t comm, int, int) {
    ncclComm_t less = nullptr;
    int excluded[] = {0};
    EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &less, nullptr, 0), ncclInvalidArgument);
    excluded[0] = 1;
    EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &less, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(comm, nullptr, 0, &less, nullptr, 0), ncclInvalidArgument);
    excluded[0] = 0;
    EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &less, nullptr, NCCL_SHRINK_ABORT), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &less, nullptr, 2), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("flags of 2"), std::string::npos);
    EXPECT_EQ(less, nullptr);
    check_sum(comm, 0, {0});
  });
}

}  // namespace
}  // namespace strait::testing
