// How GPU ranks and their processes end beside others: exits, forks, captures by other threads; and streams of another
// GPU than the rank's.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "gpu/device_side.hpp"

namespace strait::testing {
namespace {

/// Returns a new communicator of all ranks of `comm`.
straitComm_t another(straitComm_t comm, int rank) {
  straitComm_t made = nullptr;
  STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &made, nullptr));
  return made;
}

/// Exits the process without destroying its communicators, while a call waits for a rank that has left.
void check_exit(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  CollectiveCase c;
  c.count = 50'000;
  side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
  if (rank == 0)
    STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.send(), 1000, straitFloat32, straitSum, comm, side.stream()));
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// All ranks but the first exit. The first must see no error from that until it needs them.
void check_exit_of_others(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  CollectiveCase c;
  c.count = 50'000;
  side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
  if (rank != 0) std::exit(::testing::Test::HasFailure() ? 1 : 0);
  if (ranks == 1) return;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  straitResult_t error = straitInternalError;
  STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
  EXPECT_EQ(error, straitSuccess) << straitGetLastError(comm);
  STRAIT_EXPECT_OK(straitCommSynchronize(comm));
  STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.send(), 1000, straitFloat32, straitSum, comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
  EXPECT_EQ(error, straitRemoteError) << straitGetLastError(comm);
}

/// Captures as `torch.cuda.graph` does, in the mode in which calls of any thread can invalidate the capture. Meanwhile
/// communicators are made, used in a wire format for the first time, and destroyed.
void check_beside_a_capture(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  cudaStream_t captured = nullptr;
  cudaGraph_t graph = nullptr;
  STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
  const straitComm_t made = another(comm, rank);
  CollectiveCase c;
  c.count = 50'000;
  side.check(made, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
  STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
  std::jthread([&] {
    STRAIT_EXPECT_CUDA(cudaSetDevice(rank % gpu_count()));
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.wire = straitWireInt8;
    STRAIT_EXPECT_OK(straitAllReduceWithOptions(side.send(), side.send(), 50'000, straitFloat32, straitSum, made,
                                                side.stream(), &options));
    STRAIT_EXPECT_OK(straitCommSynchronize(made));
    STRAIT_EXPECT_OK(straitCommDestroy(made));
  }).join();
  STRAIT_EXPECT_CUDA(cudaMemsetAsync(side.receive(), 0, 16, captured));
  STRAIT_EXPECT_CUDA(cudaStreamEndCapture(captured, &graph));
  EXPECT_NE(graph, nullptr);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(captured);
}

/// A stream of another GPU must be refused: a kernel there would not find its data at this GPU's addresses.
void check_streams_of_other_gpus(straitComm_t comm, int rank, int) {
  if (gpu_count() < 2) GTEST_SKIP() << "there is one GPU";
  DeviceSide side(4096);
  const int own = rank % gpu_count();
  cudaStream_t other = nullptr;
  STRAIT_EXPECT_CUDA(cudaSetDevice((own + 1) % gpu_count()));
  STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  STRAIT_EXPECT_CUDA(cudaSetDevice(own));
  EXPECT_EQ(straitAllReduce(side.send(), side.send(), 100, straitFloat32, straitSum, comm, other), straitInvalidUsage);
  EXPECT_THAT(straitGetLastError(nullptr), ::testing::HasSubstr("the stream is of GPU"));
  STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.send(), 100, straitFloat32, straitSum, comm, side.stream()));
  STRAIT_EXPECT_OK(straitCommSynchronize(comm));
  cudaStreamDestroy(other);
}

/// A process forked after init, such as a data loader, exits while the ranks run and must disturb none of them.
void check_fork(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  CollectiveCase c;
  c.count = 50'000;
  for (int turn = 0; turn < 3; ++turn) {
    c.seed = static_cast<std::uint64_t>(turn + 1);
    side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
    const pid_t loader = fork();
    if (loader == 0) std::exit(0);
    if (turn == 1) continue;  // this one ends while calls are running
    EXPECT_EQ(wait_for(loader, 10'000), 0) << "turn " << turn;
  }
  STRAIT_EXPECT_OK(straitBarrier(comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
}

using DeviceEnds = DeviceRanks;
TEST_P(DeviceEnds, ExitsWithoutDestroy) {
  if (!GetParam().as_processes) GTEST_SKIP() << "a process exits as a whole";
  run(check_exit);
}
TEST_P(DeviceEnds, OthersExitWithoutDestroy) {
  if (!GetParam().as_processes) GTEST_SKIP() << "a process exits as a whole";
  run(check_exit_of_others);
}
TEST_P(DeviceEnds, BesideACapture) {
  if (!GetParam().as_processes) GTEST_SKIP() << "all threads of a process would capture at once";
  run(check_beside_a_capture);
}
TEST_P(DeviceEnds, RefusesStreamsOfOtherGpus) { run(check_streams_of_other_gpus); }
TEST_P(DeviceEnds, ForksAfterInit) {
  if (!GetParam().as_processes) GTEST_SKIP() << "a process forks as a whole";
  run(check_fork);
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceEnds, ::testing::Values(Setup{false, 2}, Setup{false, 3}, Setup{true, 2}),
                         name_of);

}  // namespace
}  // namespace strait::testing
