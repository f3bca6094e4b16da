// The parts of the drop-in's interface besides communicators: errors, groups, reductions; with host ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "abi/check_sum.hpp"
#include "support/freed_memory.hpp"

namespace strait::testing {
namespace {

using Values = std::vector<std::int32_t>;

TEST(Library, Version) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
}

TEST(Library, ErrorStrings) {
  std::vector<std::string> texts;
  for (int result = ncclSuccess; result <= ncclTimeout; ++result) {
    texts.emplace_back(ncclGetErrorString(static_cast<ncclResult_t>(result)));
    EXPECT_FALSE(texts.back().empty());
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end()) << "two results have the same text";
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(15)), "unknown result");
}

TEST(Library, LastErrorOfAnotherThreadIsSeenWhereThisOneHasNone) {
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  std::string seen;
  std::jthread([&] { seen = ncclGetLastError(nullptr); }).join();
  EXPECT_EQ(seen, "ncclGetVersion: the pointer is NULL");
}

/// NCCL ignores the communicator, and programs report errors of one that they have destroyed already.
TEST(Library, LastErrorIsAskedForByAnyPointer) {
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  ncclComm_t comm = nullptr;
  NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
  for (ncclComm_t handle : {comm, reinterpret_cast<ncclComm_t>(8)})
    EXPECT_STREQ(ncclGetLastError(handle), "ncclGetVersion: the pointer is NULL");
}

/// Destructors of a program's static objects may call the library, after thread_local objects have been destroyed.
TEST(Library, AnErrorAtTheEndOfTheProcessHarmsNothing) {
  const auto end = [] {
    EXPECT_EQ(ncclCommCount(nullptr, nullptr), ncclInvalidArgument);
    EXPECT_STRNE(ncclGetLastError(nullptr), "");
    std::atexit([] {
      if (!fails_and_writes_nowhere([] { return ncclCommCount(nullptr, nullptr) != ncclSuccess; })) _exit(1);
      if (std::string(ncclGetLastError(nullptr)).find("ncclCommCount") != 0) _exit(2);
    });
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

TEST(Arguments, AreRefusedByName) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = reinterpret_cast<ncclComm_t>(&id);
  const auto refused = [&](ncclResult_t result, ncclResult_t expected, const char* part) {
    EXPECT_EQ(result, expected);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(part), std::string::npos) << ncclGetLastError(nullptr);
  };
  refused(ncclGetUniqueId(nullptr), ncclInvalidArgument, "ncclGetUniqueId");
  refused(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument, "NULL");
  refused(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "0 ranks");
  EXPECT_EQ(comm, nullptr);
  refused(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank 2");
  refused(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument, "rank -1");
  refused(ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument, "ncclCommInitAll");
  refused(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, nullptr), ncclInvalidArgument, "unique id");
  ncclConfig_t config{};
  refused(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  const ncclUniqueId zeros{};
  refused(ncclCommInitRank(&comm, 1, zeros, 0), ncclInvalidArgument, "unique id");
  EXPECT_EQ(comm, nullptr);

  float value = 0;
  refused(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, nullptr, nullptr), ncclInvalidArgument, "NULL");
  refused(ncclCommCount(nullptr, nullptr), ncclInvalidArgument, "ncclCommCount");
  std::uint64_t no_comm[64] = {};
  refused(ncclCommAbort(reinterpret_cast<ncclComm_t>(no_comm)), ncclInvalidArgument, "not a communicator");
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommRevoke(nullptr, 0), ncclSuccess);
  refused(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupStart");
}

TEST(Arguments, OfOperationsLeaveTheCommunicatorUsable) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    Values values(4);
    const auto refused = [&](ncclResult_t result, const char* text = "") {
      EXPECT_EQ(result, ncclInvalidArgument);
      EXPECT_STRNE(ncclGetLastError(comm), "");
      EXPECT_THAT(ncclGetLastError(comm), ::testing::HasSubstr(text));
      EXPECT_THAT(ncclGetLastError(comm), ::testing::Not(::testing::HasSubstr("strait")));
    };
    refused(ncclAllReduce(values.data(), values.data(), 4, static_cast<ncclDataType_t>(55), ncclSum, comm, nullptr),
            "all-reduce: 55 is no data type (ncclDataType_t)");
    refused(ncclAllReduce(values.data(), values.data(), 4, static_cast<ncclDataType_t>(12), ncclSum, comm, nullptr));
    refused(ncclAllReduce(values.data(), values.data(), 4, ncclInt32, static_cast<ncclRedOp_t>(7), comm, nullptr),
            "7 is no reduction of this communicator (ncclRedOp_t)");
    refused(ncclBroadcast(values.data(), values.data(), 4, ncclInt32, 2, comm, nullptr));
    refused(ncclSend(values.data(), 4, ncclInt32, -1, comm, nullptr));
    refused(ncclAllReduce(nullptr, values.data(), 4, ncclInt32, ncclSum, comm, nullptr));
    refused(ncclCommCount(comm, nullptr));
    refused(ncclRedOpDestroy(ncclSum, comm), "ncclRedOpDestroy: built-in");
    refused(ncclCommDeregister(comm, values.data()));
    refused(ncclCommWindowDeregister(comm, reinterpret_cast<ncclWindow_t>(values.data())));
    refused(ncclCommSplit(comm, -2, 0, &comm, nullptr));
    ncclResult_t error = ncclInternalError;
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, ncclSuccess);
    check_sum(comm, rank, all_of(2));
  });
}

TEST(Unsupported, SaysSoAndSpoilsAGroup) {
  on_threads(1, [](ncclComm_t comm, int, int) {
    EXPECT_EQ(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidUsage);
    EXPECT_STREQ(ncclGetLastError(comm), "ncclSignal is not supported by Strait (docs/nccl.md)");
    Values in{1}, out{-1};
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclAllReduce(in.data(), out.data(), 1, ncclInt32, ncclSum, comm, nullptr));
    EXPECT_EQ(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidUsage);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(out[0], -1);
  });
}

TEST(Queries, AnswerForTheRank) {
  on_processes(3, [](ncclComm_t comm, int rank, int ranks) {
    int count = -1, own = -1, device = 5;
    NCCL_EXPECT_OK(ncclCommCount(comm, &count));
    NCCL_EXPECT_OK(ncclCommUserRank(comm, &own));
    NCCL_EXPECT_OK(ncclCommCuDevice(comm, &device));
    EXPECT_EQ(count, ranks);
    EXPECT_EQ(own, rank);
    EXPECT_EQ(device, -1);
  });
}

TEST(Errors, AMismatchIsInvalidUsageOnAllRanksAndShowsBothCalls) {
  on_processes(2, [](ncclComm_t comm, int rank, int) {
    std::vector<float> values(100);
    const std::size_t count = rank == 0 ? 100 : 99;
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclFloat32, ncclSum, comm, nullptr),
              ncclInvalidUsage);
    ncclResult_t error = ncclSuccess;
    NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, ncclInvalidUsage);
    const std::string text = ncclGetLastError(comm);
    EXPECT_NE(text.find("100"), std::string::npos) << text;
    EXPECT_NE(text.find("99"), std::string::npos) << text;
  });
}

TEST(Groups, NestAndSimulateRunsNothing) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    Values in{rank + 1}, out{-1};
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclAllReduce(in.data(), out.data(), 1, ncclInt32, ncclSum, comm, nullptr));
    NCCL_EXPECT_OK(ncclGroupEnd());
    EXPECT_EQ(out[0], -1);
    NCCL_EXPECT_OK(ncclGroupEnd());
    EXPECT_EQ(out[0], 3);

    out[0] = -1;
    ncclSimInfo_t info{sizeof info, NCCL_SIM_INFO_MAGIC, 22809, -1};
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclAllReduce(in.data(), out.data(), 1, ncclInt32, ncclSum, comm, nullptr));
    info.estimatedTime = 7;
    NCCL_EXPECT_OK(ncclGroupSimulateEnd(&info));
    EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);
    EXPECT_EQ(out[0], -1);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
    check_sum(comm, rank, all_of(2));
  });
}

TEST(Groups, AreNotSimulatedWithAnError) {
  on_threads(1, [](ncclComm_t comm, int rank, int) {
    int value = 3;
    ncclSimInfo_t info{sizeof info, NCCL_SIM_INFO_MAGIC, 22809, 7};
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage) << "there is no group";
    NCCL_EXPECT_OK(ncclGroupStart());
    EXPECT_EQ(ncclAllReduce(&value, nullptr, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
    ncclComm_t made = nullptr;
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommInitAll(&made, 1, nullptr));
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage) << "nothing can be simulated of an init";
    NCCL_EXPECT_OK(ncclCommAbort(made));
    for (ncclSimInfo_t* given : {static_cast<ncclSimInfo_t*>(nullptr), &info}) {
      info.magic = 0;
      NCCL_EXPECT_OK(ncclGroupStart());
      NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
      EXPECT_EQ(ncclGroupSimulateEnd(given), ncclInvalidArgument);
    }
    EXPECT_EQ(info.estimatedTime, 7);
    EXPECT_EQ(value, 3);
    check_sum(comm, rank, all_of(1));
  });
}

TEST(Reductions, PreMulSumFromHostAndDevice) {
  on_threads(3, [](ncclComm_t comm, int rank, int) {
    for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
      float scalar = 0.5F * static_cast<float>(rank + 1);  // differs on every rank
      ncclRedOp_t op = ncclSum;
      NCCL_EXPECT_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, residence, comm));
      EXPECT_GE(op, ncclNumOps);
      if (residence == ncclScalarHostImmediate)
        scalar = -1;
      else
        scalar *= 2;  // must be read when a call runs
      const std::vector<float> in(50, residence == ncclScalarHostImmediate ? 2 : 1);
      std::vector<float> out(50);
      NCCL_EXPECT_OK(ncclAllReduce(in.data(), out.data(), 50, ncclFloat32, op, comm, nullptr));
      EXPECT_EQ(out, std::vector<float>(50, 2 * (0.5F + 1.0F + 1.5F)));
      NCCL_EXPECT_OK(ncclRedOpDestroy(op, comm));
      EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    }
    ncclRedOp_t op = ncclSum;
    float scalar = 1;
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, static_cast<ncclScalarResidence_t>(2), comm),
              ncclInvalidArgument);
  });
}

/// Without the check, it would be a matter of chance which communicator's scalar is used.
TEST(Reductions, OfAnotherCommunicatorAreRefused) {
  ncclComm_t comms[2] = {};
  ncclRedOp_t ops[2] = {};
  for (int i = 0; i < 2; ++i) {
    NCCL_EXPECT_OK(ncclCommInitAll(&comms[i], 1, nullptr));
    float scalar = 2 + static_cast<float>(i);
    NCCL_EXPECT_OK(ncclRedOpCreatePreMulSum(&ops[i], &scalar, ncclFloat32, ncclScalarHostImmediate, comms[i]));
  }
  for (int i = 0; i < 2; ++i) {
    float in = 1, out = -1;
    EXPECT_EQ(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comms[i], nullptr), ncclSuccess);
    EXPECT_EQ(out, 1);
    EXPECT_EQ(ncclAllReduce(&in, &out, 1, ncclFloat32, ops[1 - i], comms[i], nullptr), ncclInvalidArgument);
    EXPECT_EQ(out, 1);
    EXPECT_EQ(ncclRedOpDestroy(ops[1 - i], comms[i]), ncclInvalidArgument);
    NCCL_EXPECT_OK(ncclAllReduce(&in, &out, 1, ncclFloat32, ops[i], comms[i], nullptr));
    EXPECT_EQ(out, 2 + static_cast<float>(i));
  }
  for (int i = 0; i < 2; ++i) {
    NCCL_EXPECT_OK(ncclRedOpDestroy(ops[i], comms[i]));
    NCCL_EXPECT_OK(ncclCommDestroy(comms[i]));
  }
}

/// As in NCCL they are nothing: another rank need not make them, inside and outside of groups.
TEST(EmptyCollectives, AreDiscarded) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    ncclRedOp_t premul = ncclSum;
    float scalar = 2;
    NCCL_EXPECT_OK(ncclRedOpCreatePreMulSum(&premul, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    const auto make_all = [&] {
      NCCL_EXPECT_OK(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, nullptr));
      NCCL_EXPECT_OK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, premul, comm, nullptr));
      NCCL_EXPECT_OK(ncclReduce(nullptr, nullptr, 0, ncclInt32, ncclAvg, 1, comm, nullptr));
      NCCL_EXPECT_OK(ncclReduceScatter(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, nullptr));
      NCCL_EXPECT_OK(ncclAllGather(nullptr, nullptr, 0, ncclInt32, comm, nullptr));
      NCCL_EXPECT_OK(ncclAlltoAll(nullptr, nullptr, 0, ncclInt32, comm, nullptr));
      NCCL_EXPECT_OK(ncclBroadcast(nullptr, nullptr, 0, ncclInt32, 1, comm, nullptr));
      NCCL_EXPECT_OK(ncclBcast(nullptr, 0, ncclInt32, 1, comm, nullptr));
      NCCL_EXPECT_OK(ncclGather(nullptr, nullptr, 0, ncclInt32, 1, comm, nullptr));
      NCCL_EXPECT_OK(ncclScatter(nullptr, nullptr, 0, ncclInt32, 1, comm, nullptr));
    };
    if (rank == 0) make_all();
    check_sum(comm, rank, all_of(2));
    Values values{rank + 1};
    if (rank == 0) {
      NCCL_EXPECT_OK(ncclGroupStart());
      make_all();
    }
    NCCL_EXPECT_OK(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, nullptr));
    if (rank == 0) NCCL_EXPECT_OK(ncclGroupEnd());
    EXPECT_EQ(values, Values{3});
    NCCL_EXPECT_OK(ncclRedOpDestroy(premul, comm));
  });
}

TEST(EmptyCollectives, AreCheckedAllTheSame) {
  ncclComm_t comms[2] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, 2, nullptr));
  const auto sum = [](ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm) {
    return ncclAllReduce(nullptr, nullptr, 0, type, op, comm, nullptr);
  };
  EXPECT_EQ(sum(static_cast<ncclDataType_t>(12), ncclSum, comms[0]), ncclInvalidArgument);
  EXPECT_EQ(sum(ncclInt32, static_cast<ncclRedOp_t>(7), comms[0]), ncclInvalidArgument);
  for (const int root : {-1, 2}) {
    EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 0, ncclInt32, root, comms[0], nullptr), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("root"), std::string::npos) << ncclGetLastError(comms[0]);
  }
  ncclRedOp_t premul = ncclSum;
  float scalar = 2;
  NCCL_EXPECT_OK(ncclRedOpCreatePreMulSum(&premul, &scalar, ncclFloat32, ncclScalarHostImmediate, comms[0]));
  EXPECT_EQ(sum(ncclFloat32, premul, comms[1]), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclRedOpDestroy(premul, comms[0]));
  EXPECT_EQ(sum(ncclFloat32, premul, comms[0]), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclCommRevoke(comms[1], 0));
  EXPECT_EQ(sum(ncclInt32, ncclSum, comms[1]), ncclInvalidUsage);
  EXPECT_EQ(sum(ncclInt32, ncclSum, comms[0]), ncclRemoteError);
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// The collectives of a group come before its messages: rank 0's send waits for rank 1's receive, which is posted after
/// the all-reduce.
TEST(Groups, CollectivesComeFirst) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    constexpr int count = 4 << 20;
    std::vector<int> sum(1000, rank + 1), message(count, rank == 0 ? 7 : 0);
    const auto reduce = [&] {
      NCCL_EXPECT_OK(ncclAllReduce(sum.data(), sum.data(), sum.size(), ncclInt32, ncclSum, comm, nullptr));
    };
    if (rank == 0) {
      NCCL_EXPECT_OK(ncclGroupStart());
      NCCL_EXPECT_OK(ncclSend(message.data(), count, ncclInt32, 1, comm, nullptr));
      reduce();
      NCCL_EXPECT_OK(ncclGroupEnd());
    } else {
      reduce();
      NCCL_EXPECT_OK(ncclRecv(message.data(), count, ncclInt32, 0, comm, nullptr));
    }
    EXPECT_EQ(sum, std::vector<int>(1000, 3));
    EXPECT_EQ(message, std::vector<int>(count, 7));
  });
}

}  // namespace
}  // namespace strait::testing
