// How the communicator carries out groups of calls of GPU ranks. Without a GPU.
#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fake_device_rank.hpp"
#include "gpu_ranks.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns what `calls`, made in a group, make the GPUs do, in order.
std::vector<std::string> logged(const std::function<void()>& calls) {
  fake_gpu.launch_error.clear();
  fake_gpu.captures = false;
  fake_gpu.log.clear();
  fake_gpu.logs = true;
  STRAIT_EXPECT_OK(straitGroupStart());
  calls();
  STRAIT_EXPECT_OK(straitGroupEnd());
  fake_gpu.logs = false;
  return fake_gpu.log;
}

/// Calls of several GPUs are launched alternately in whatever order the program makes them. Otherwise the calls of one
/// GPU could fill its queue before another GPU has any.
TEST(DeviceRankGroups, CallsOfSeveralGpusAreLaunchedInTurn) {
  const auto comms = join_in_a_group(3);
  std::array<float, 8> values{};
  const auto log = logged([&] {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      STRAIT_EXPECT_OK(
          straitAllReduce(values.data(), values.data(), 8, straitFloat32, straitSum, comms[rank], nullptr));
      STRAIT_EXPECT_OK(straitBarrier(comms[rank], nullptr));
      if (rank == 2) continue;
      const int peer = 1 - static_cast<int>(rank);
      STRAIT_EXPECT_OK(straitSend(values.data(), 1, straitFloat32, peer, comms[rank], nullptr));
      STRAIT_EXPECT_OK(straitRecv(values.data() + 1, 1, straitFloat32, peer, comms[rank], nullptr));
    }
  });
  EXPECT_THAT(log, ElementsAre("0: all-reduce", "1: all-reduce", "2: all-reduce", "0: barrier", "1: barrier",
                               "2: barrier", "0: send-recv", "1: send-recv"));
  for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST(DeviceRankGroups, CollectivesThatGoTogetherAreOneOperation) {
  const auto comms = join_in_a_group(2);
  std::array<float, 8> values{};
  const auto call = [&](std::size_t rank) {
    STRAIT_EXPECT_OK(straitAllReduce(values.data(), values.data(), 8, straitFloat32, straitSum, comms[rank], nullptr));
  };
  fake_gpu.aggregates = 3;
  const auto log = logged([&] {
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t calls = 0; calls < 3 + rank; ++calls) call(rank);
  });
  EXPECT_THAT(log,
              ElementsAre("0: aggregate of 3", "0: all-reduce", "0: all-reduce", "0: all-reduce", "1: aggregate of 3",
                          "1: all-reduce", "1: all-reduce", "1: all-reduce", "1: all-reduce"));
  // The error names the first call that failed, with its own number.
  fake_gpu.launch_error = "no";
  STRAIT_EXPECT_OK(straitGroupStart());
  for (int calls = 0; calls < 2; ++calls) call(0);
  EXPECT_EQ(straitGroupEnd(), straitCudaError);
  EXPECT_THAT(straitGetLastError(comms[0]), HasSubstr("all-reduce(count 8, float32, sum), collective number 4 on"));
  fake_gpu.aggregates = 1;
  fake_gpu.launch_error.clear();
  for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// Ranks that group calls differently would wait for one another forever.
TEST(DeviceRankGroups, RanksThatGroupDifferentlyAreToldSo) {
  fake_gpu.aggregates = 2;
  run_two_ranks([](straitComm_t comm, int rank, int) {
    std::array<float, 8> values{};
    if (rank == 0) STRAIT_EXPECT_OK(straitGroupStart());
    straitResult_t result = straitSuccess;
    for (int calls = 0; calls < 2; ++calls)
      result = straitAllReduce(values.data(), values.data(), 8, straitFloat32, straitSum, comm, nullptr);
    if (rank == 0) result = straitGroupEnd();
    meet();
    if (result == straitSuccess)
      result = straitAllReduce(values.data(), values.data(), 8, straitFloat32, straitSum, comm, nullptr);
    EXPECT_EQ(result, straitMismatch);
    EXPECT_THAT(straitGetLastError(comm), AllOf(HasSubstr("sum, in a group with the call before it)"),
                                                HasSubstr("in the same groups; STRAIT_AGGREGATE=0 on all ranks")));
  });
  fake_gpu.aggregates = 1;
}

straitStream_t stream(std::uintptr_t number) { return reinterpret_cast<straitStream_t>(number); }

/// To the streams of a communicator, its part of a group is one operation.
TEST(DeviceRankGroups, StreamsOfACommunicatorWaitForItsWholeGroup) {
  const auto comms = join_in_a_group(2);
  std::array<float, 8> values{};
  const auto log = logged([&] {
    for (const std::uintptr_t number : {3, 5, 3, 4}) STRAIT_EXPECT_OK(straitBarrier(comms[0], stream(number)));
    STRAIT_EXPECT_OK(straitAllReduce(values.data(), values.data(), 8, straitFloat32, straitSum, comms[0], stream(5)));
    for (int call = 0; call < 2; ++call) STRAIT_EXPECT_OK(straitBarrier(comms[1], stream(7)));
  });
  EXPECT_THAT(log, ElementsAre("0: stream 3 waits for 5", "0: stream 3 waits for 4", "0: barrier", "1: barrier",
                               "0: barrier", "1: barrier", "0: barrier", "0: barrier", "0: all-reduce",
                               "0: stream 3 waits for 5", "0: stream 4 waits for 5"));
  for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// Messages are launched last, on the stream of the first of them.
TEST(DeviceRankGroups, StreamsOfCollectivesWaitForMessages) {
  const auto comms = join_in_a_group(1);
  std::array<float, 2> values{};
  const auto messages = [&] {
    STRAIT_EXPECT_OK(straitSend(values.data(), 1, straitFloat32, 0, comms[0], stream(2)));
    STRAIT_EXPECT_OK(straitRecv(values.data() + 1, 1, straitFloat32, 0, comms[0], stream(6)));
  };
  EXPECT_THAT(logged(messages), ElementsAre("0: send-recv"));
  EXPECT_THAT(logged([&] {
                STRAIT_EXPECT_OK(straitBarrier(comms[0], stream(4)));
                messages();
              }),
              ElementsAre("0: stream 4 waits for 2", "0: stream 4 waits for 6", "0: barrier", "0: send-recv",
                          "0: stream 6 waits for 2", "0: stream 4 waits for 2"));
  STRAIT_EXPECT_OK(straitCommDestroy(comms[0]));
}

TEST(DeviceRankGroups, StreamsThatCannotWaitAreNews) {
  const auto comms = join_in_a_group(1);
  STRAIT_EXPECT_OK(straitGroupStart());
  for (const std::uintptr_t number : {1, 2}) STRAIT_EXPECT_OK(straitBarrier(comms[0], stream(number)));
  fake_gpu.launch_error = "no such stream";
  EXPECT_EQ(straitGroupEnd(), straitCudaError);
  EXPECT_THAT(straitGetLastError(comms[0]),
              AllOf(HasSubstr("such as barrier, on rank 0 (host "), HasSubstr("no such")));
  fake_gpu.launch_error.clear();
  EXPECT_EQ(straitBarrier(comms[0], nullptr), straitCudaError) << "sticky";
  STRAIT_EXPECT_OK(straitCommDestroy(comms[0]));
}

}  // namespace
}  // namespace strait::testing
