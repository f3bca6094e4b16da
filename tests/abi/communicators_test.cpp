// How communicators of the drop-in begin and end: in groups, in the background, by abort; with host ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "abi/check_sum.hpp"
#include "abi/naps.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using Values = std::vector<std::int32_t>;

TEST(Init, AllInOneThread) {
  for (const int ranks : {1, 2, 5}) {
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
    NCCL_EXPECT_OK(ncclCommInitAll(comms.data(), ranks, nullptr));
    std::vector<Values> values;
    for (int rank = 0; rank < ranks; ++rank) values.push_back({rank + 1});
    NCCL_EXPECT_OK(ncclGroupStart());
    for (std::size_t r = 0; r < comms.size(); ++r)
      NCCL_EXPECT_OK(ncclAllReduce(values[r].data(), values[r].data(), 1, ncclInt32, ncclSum, comms[r], nullptr));
    NCCL_EXPECT_OK(ncclGroupEnd());
    for (const Values& sum : values) EXPECT_EQ(sum[0], ranks * (ranks + 1) / 2);
    for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  }
}

TEST(Init, InAGroupAndSplitInAGroup) {
  constexpr int ranks = 4;
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[ranks] = {}, parts[ranks] = {};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) NCCL_EXPECT_OK(ncclCommInitRank(&comms[rank], ranks, id, rank));
  int count = 0;
  EXPECT_EQ(ncclCommCount(comms[0], &count), ncclInvalidArgument) << "not before the group's end";
  NCCL_EXPECT_OK(ncclGroupEnd());

  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank)
    NCCL_EXPECT_OK(ncclCommSplit(comms[rank], rank == 3 ? NCCL_SPLIT_NOCOLOR : rank % 2, -rank, &parts[rank], nullptr));
  NCCL_EXPECT_OK(ncclGroupEnd());
  EXPECT_EQ(parts[3], nullptr);
  int rank_in_part = -1;
  NCCL_EXPECT_OK(ncclCommCount(parts[0], &count));
  NCCL_EXPECT_OK(ncclCommUserRank(parts[0], &rank_in_part));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(rank_in_part, 1) << "keys order the ranks";

  Values values[ranks] = {{1}, {10}, {100}, {1000}};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank)
    NCCL_EXPECT_OK(
        ncclAllReduce(values[rank].data(), values[rank].data(), 1, ncclInt32, ncclSum, parts[rank], nullptr));
  NCCL_EXPECT_OK(ncclGroupEnd());
  EXPECT_EQ(values[0], Values{101});
  EXPECT_EQ(values[1], Values{10});
  EXPECT_EQ(values[2], Values{101});
  for (ncclComm_t comm : parts) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

TEST(Init, ByTheFirstOfSeveralIds) {
  ncclUniqueId ids[3];
  for (ncclUniqueId& id : ids) NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) NCCL_EXPECT_OK(ncclCommInitRankScalable(&comms[rank], 2, rank, 2, ids, nullptr));
  NCCL_EXPECT_OK(ncclGroupEnd());
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  for (const int more_or_none : {3, 0})
    EXPECT_EQ(ncclCommInitRankScalable(&comms[0], 2, 0, more_or_none, ids, nullptr), ncclInvalidArgument);
}

/// An argument error in the group: nothing is set up, and the handles report it.
TEST(Init, ASpoiledGroupSetsNothingUp) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr, other = nullptr;
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclCommInitRank(&comm, 2, id, 0));
  EXPECT_EQ(ncclCommInitRank(&other, 2, id, 9), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  ASSERT_NE(comm, nullptr);
  ncclResult_t error = ncclSuccess;
  NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
  EXPECT_EQ(error, ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 9"), std::string::npos) << ncclGetLastError(comm);
  int count = 0;
  EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclCommAbort(comm));
}

TEST(NonBlocking, InitAndSplitAreInProgressUntilAllAreThere) {
  constexpr int ranks = 3;
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[ranks] = {};
  for (int rank = 0; rank < ranks - 1; ++rank)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], ranks, id, rank, &config), ncclInProgress);
  for (int rank = 0; rank < ranks - 1; ++rank) {
    ncclResult_t state = ncclSuccess;
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comms[rank], &state));
    EXPECT_EQ(state, ncclInProgress);
    int value = 0;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[rank], nullptr), ncclInvalidArgument);
  }
  EXPECT_EQ(ncclCommInitRankConfig(&comms[ranks - 1], ranks, id, ranks - 1, &config), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess) << ncclGetLastError(comm);

  // The parent is in progress as well, and its handle to the part exists at once.
  ncclComm_t parts[ranks] = {};
  for (int rank = 0; rank < ranks - 1; ++rank)
    EXPECT_EQ(ncclCommSplit(comms[rank], 0, rank, &parts[rank], nullptr), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  NCCL_EXPECT_OK(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclCommSplit(comms[ranks - 1], NCCL_SPLIT_NOCOLOR, 0, &parts[ranks - 1], nullptr), ncclInProgress);
  EXPECT_EQ(parts[ranks - 1], nullptr);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  for (int rank = 0; rank < ranks - 1; ++rank) EXPECT_EQ(await_ready(parts[rank]), ncclSuccess);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks - 1; ++rank)
      threads.emplace_back([&, rank] { check_sum(parts[rank], rank, all_of(ranks - 1)); });
  }
  for (int rank = 0; rank < ranks - 1; ++rank)  // parts inherit the non-blocking mode
    EXPECT_EQ(ncclCommFinalize(parts[rank]), ncclInProgress);
  for (int rank = 0; rank < ranks - 1; ++rank) EXPECT_EQ(await_ready(parts[rank]), ncclSuccess);
  for (int rank = 0; rank < ranks - 1; ++rank) NCCL_EXPECT_OK(ncclCommDestroy(parts[rank]));
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// As in NCCL, the old communicator's mode decides whether the split blocks, the part's whether later calls on it do.
TEST(NonBlocking, APartOfABlockingCommunicatorIsThereAtOnce) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t part = nullptr;
    NCCL_EXPECT_OK(ncclCommSplit(comm, 0, rank, &part, &config));
    ncclResult_t state = ncclInternalError;
    for (ncclComm_t each : {comm, part}) {
      NCCL_EXPECT_OK(ncclCommGetAsyncError(each, &state));
      EXPECT_EQ(state, ncclSuccess);
    }
    check_sum(part, rank, all_of(2));
    EXPECT_EQ(ncclCommFinalize(part), ncclInProgress);
    EXPECT_EQ(await_ready(part), ncclSuccess);
    NCCL_EXPECT_OK(ncclCommDestroy(part));
  });
}

TEST(NonBlocking, InAGroup) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) NCCL_EXPECT_OK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// The split runs in the background, beside the group's operations: another rank that is ahead in these makes no other
/// calls than this one.
TEST(NonBlocking, AGroupOfOperationsAndASplitWaitsForALateRank) {
  constexpr int ranks = 3;
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  const auto run = [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr, part = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), ncclInProgress);
    ASSERT_EQ(await_ready(comm), ncclSuccess);
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(800));
    Values values(16), sums(16);
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclReduce(values.data(), sums.data(), 16, ncclInt32, ncclSum, 0, comm, nullptr));
    NCCL_EXPECT_OK(ncclAllReduce(values.data(), sums.data(), 16, ncclInt32, ncclSum, comm, nullptr));
    ncclResult_t result = ncclCommSplit(comm, 0, rank, &part, nullptr);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
    result = ncclGroupEnd();
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << ncclGetLastError(comm);
    EXPECT_EQ(await_ready(comm), ncclSuccess) << ncclGetLastError(comm);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(await_ready(part), ncclSuccess) << ncclGetLastError(part);
    check_sum(part, rank, all_of(ranks));
    NCCL_EXPECT_OK(ncclCommDestroy(part));
    NCCL_EXPECT_OK(ncclCommDestroy(comm));
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
}

/// A rank waits for others that never come; another thread gives up on it.
TEST(NonBlocking, AbortWhileRanksAreMissing) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  const Stopwatch watch;
  NCCL_EXPECT_OK(ncclCommAbort(comm));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(2));
}

/// Another thread, which already has the handle, aborts a blocking init.
TEST(Abort, FromAnotherThreadReleasesAnInit) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  expect_abort_ends([&](ncclComm_t* comm) { return ncclCommInitRank(comm, 2, id, 0); });
}

/// A split in the background that not all ranks join.
TEST(Abort, EndsASplitOnAllRanks) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[3] = {}, parts[2] = {};
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(ncclCommSplit(comms[rank], 0, 0, &parts[rank], nullptr), ncclInProgress);
  NCCL_EXPECT_OK(ncclCommAbort(comms[2]));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(await_ready(comms[rank]), ncclRemoteError);
    EXPECT_EQ(await_ready(parts[rank]), ncclRemoteError);
    NCCL_EXPECT_OK(ncclCommDestroy(parts[rank]));
    NCCL_EXPECT_OK(ncclCommDestroy(comms[rank]));
  }
}

TEST(Abort, FromAnotherThreadReleasesARunningCall) {
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  FirstNap nap;
  ncclResult_t result = ncclSuccess;
  std::jthread caller([&] {
    Values values(10);
    nap.watch_for_it();
    result = ncclAllReduce(values.data(), values.data(), 10, ncclInt32, ncclSum, comms[0], nullptr);  // rank 1 never
  });
  nap.await();  // before it is in its call, its handle must not be destroyed
  const Stopwatch since_abort;
  NCCL_EXPECT_OK(ncclCommAbort(comms[0]));
  EXPECT_LT(since_abort.elapsed(), std::chrono::seconds(5));
  caller.join();
  EXPECT_EQ(result, ncclRemoteError);
  ncclResult_t error = ncclSuccess;
  NCCL_EXPECT_OK(ncclCommGetAsyncError(comms[1], &error));
  EXPECT_EQ(error, ncclRemoteError);
  NCCL_EXPECT_OK(ncclCommDestroy(comms[1]));
}

/// In some versions of PyTorch, shutdown() was only an abort, on one rank before another. The other rank's watchdog may
/// still query its communicator and must see no failure.
TEST(Abort, OfAnIdleCommunicatorIsNoFailureToOthers) {
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  Values values[2] = {{1}, {2}};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    NCCL_EXPECT_OK(
        ncclAllReduce(values[rank].data(), values[rank].data(), 1, ncclInt32, ncclSum, comms[rank], nullptr));
  NCCL_EXPECT_OK(ncclGroupEnd());
  NCCL_EXPECT_OK(ncclCommAbort(comms[0]));
  ncclResult_t error = ncclInternalError;
  NCCL_EXPECT_OK(ncclCommGetAsyncError(comms[1], &error));
  EXPECT_EQ(error, ncclSuccess);
  EXPECT_EQ(values[1][0], 3);
  NCCL_EXPECT_OK(ncclCommFinalize(comms[1]));
  NCCL_EXPECT_OK(ncclCommAbort(comms[1]));
}

TEST(Abort, InsideAGroupAsPyTorchDoes) {
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  NCCL_EXPECT_OK(ncclGroupStart());
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommAbort(comm));
  NCCL_EXPECT_OK(ncclGroupEnd());
}

TEST(Abort, NotWhileTheOpenGroupHoldsCalls) {
  ncclComm_t comm = nullptr;
  NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
  Values values{3};
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr));
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidUsage);
  NCCL_EXPECT_OK(ncclGroupEnd());
  EXPECT_EQ(values[0], 3);
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// A group is open on one thread while another thread aborts its communicator: the group's end must report it, and
/// nothing may be used after it was freed.
TEST(Abort, OfACommunicatorThatAnotherThreadsGroupHolds) {
  ncclComm_t comm = nullptr;
  NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
  Values values{3};
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr));
  std::jthread([&] { NCCL_EXPECT_OK(ncclCommAbort(comm)); }).join();
  EXPECT_EQ(ncclGroupEnd(), ncclRemoteError);
}

/// On a rank that revokes, the state is success; on the others it is an error until they revoke, too.
TEST(Abort, RevokeKeepsTheHandle) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    Values values(1);
    if (rank == 0) {
      EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
      NCCL_EXPECT_OK(ncclCommRevoke(comm, 0));
    }
    const auto sum = [&] { return ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr); };
    EXPECT_EQ(sum(), rank == 0 ? ncclInvalidUsage : ncclRemoteError);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find(rank == 0 ? "was revoked" : "aborted"), std::string::npos)
        << ncclGetLastError(comm);
    ncclResult_t error = ncclInternalError;
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, rank == 0 ? ncclSuccess : ncclRemoteError);
    if (rank == 1) {
      NCCL_EXPECT_OK(ncclCommRevoke(comm, 0));
      NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
      EXPECT_EQ(error, ncclSuccess);
      EXPECT_EQ(sum(), ncclInvalidUsage);
    }
    EXPECT_EQ(ncclCommRevoke(comm, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  });
}

TEST(Finalize, EndsOperationsAndKeepsTheRest) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    check_sum(comm, rank, all_of(2));
    NCCL_EXPECT_OK(ncclCommFinalize(comm));
    Values values(1);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRevoke(comm, 0), ncclInvalidArgument);
    ncclResult_t error = ncclInternalError;
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, ncclSuccess);
  });
}

ncclComm_t make_one_that_does_not_block() {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  EXPECT_EQ(await_ready(comm), ncclSuccess);
  return comm;
}

/// In a group, the error must not be hidden by another communicator whose finalize is still in progress.
TEST(Finalize, OfAFailedCommunicatorSaysSo) {
  ncclComm_t comms[2] = {}, other = make_one_that_does_not_block();
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  NCCL_EXPECT_OK(ncclCommRevoke(comms[1], 0));
  for (int times = 0; times < 2; ++times) EXPECT_EQ(ncclCommFinalize(comms[0]), ncclRemoteError);
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclCommFinalize(comms[0]));
  NCCL_EXPECT_OK(ncclCommFinalize(other));
  EXPECT_EQ(ncclGroupEnd(), ncclRemoteError);
  for (ncclComm_t comm : {comms[0], comms[1], other}) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

TEST(Finalize, OfOneThatDoesNotBlockIsAskedFor) {
  ncclComm_t comm = make_one_that_does_not_block();
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  EXPECT_EQ(await_ready(comm), ncclSuccess);
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace strait::testing
