// Several communicators of the same GPUs, whose calls run at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/device_side.hpp"
#include "gpu/spin.hpp"

namespace strait::testing {
namespace {

constexpr std::size_t most_bytes = std::size_t{32} << 20;  ///< that a rank contributes

/// A communicator with a stream and buffers of its own.
class Line {
 public:
  Line(straitComm_t parent, int rank, int ranks) : rank_(rank), ranks_(static_cast<std::size_t>(ranks)) {
    straitConfig_t config = test_config();
    config.device = rank % gpu_count();
    config.timeout_ms = 10'000;
    STRAIT_EXPECT_OK(straitCommSplit(parent, 0, rank, &comm_, &config));
    STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    STRAIT_EXPECT_CUDA(cudaMalloc(&send_, most_bytes));
    STRAIT_EXPECT_CUDA(cudaMalloc(&receive_, most_bytes * ranks_));
  }
  ~Line() {
    STRAIT_EXPECT_OK(straitCommDestroy(comm_));
    cudaFree(send_);
    cudaFree(receive_);
    cudaStreamDestroy(stream_);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  void fill(std::size_t bytes, int value) {
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(send_, value + rank_, bytes, stream_));
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(receive_, poison, bytes * ranks_, stream_));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }
  void delay(const std::uint32_t* stop, std::uint32_t ms) { STRAIT_EXPECT_CUDA(launch_spin(stop, ms, stream_)); }
  void gather(std::size_t bytes) {
    STRAIT_EXPECT_OK(straitAllGather(send_, receive_, bytes, straitUint8, comm_, stream_));
  }
  void check(std::size_t bytes, int value) {
    std::vector<unsigned char> got(bytes * ranks_);
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
    straitResult_t error = straitSuccess;
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm_, &error));
    ASSERT_EQ(error, straitSuccess) << straitGetLastError(comm_);
    STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), receive_, got.size(), cudaMemcpyDeviceToHost));
    for (std::size_t from = 0; from < ranks_; ++from) {
      const auto begin = got.begin() + static_cast<std::ptrdiff_t>(from * bytes);
      const auto right = static_cast<unsigned char>(value + static_cast<int>(from));
      EXPECT_EQ(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), right), bytes) << "of rank " << from;
    }
  }

 private:
  int rank_;
  std::size_t ranks_;
  straitComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::byte *send_ = nullptr, *receive_ = nullptr;
};

/// All ranks make their calls in the same order. But on each GPU another stream is late, so that another communicator's
/// call could start first there, and take the place of the one that the other GPU has started.
void check_late_streams(straitComm_t parent, int rank, int ranks) {
  std::uint32_t* never = nullptr;
  STRAIT_EXPECT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&never), sizeof *never, cudaHostAllocMapped));
  *never = 0;
  {
    Line lines[] = {{parent, rank, ranks}, {parent, rank, ranks}, {parent, rank, ranks}};
    for (const std::size_t bytes : {std::size_t{100'000}, std::size_t{1} << 20, std::size_t{2} << 20,
                                    std::size_t{4} << 20, std::size_t{8} << 20, most_bytes})
      for (int turn = 0; turn < 6; ++turn) {
        for (Line& each : lines) each.fill(bytes, turn);
        STRAIT_EXPECT_OK(straitBarrier(parent, nullptr));
        STRAIT_EXPECT_OK(straitCommSynchronize(parent));
        lines[(rank + turn) % 3].delay(never, 20);
        for (Line& each : lines) each.gather(bytes);
        for (Line& each : lines) each.check(bytes, turn);
        if (::testing::Test::HasFailure()) return;
      }
  }
  cudaFreeHost(never);
}

using DeviceCommunicators = DeviceRanks;
TEST_P(DeviceCommunicators, DoNotTakeOneAnothersPlace) {
  if (!GetParam().as_processes && gpus_in_a_child() < GetParam().ranks)
    GTEST_SKIP() << "threads that share a GPU have no place beside one another for calls of several communicators";
  run(check_late_streams);
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCommunicators,
                         ::testing::Values(Setup{true, 2}, Setup{true, 3}, Setup{false, 2}, Setup{false, 4}), name_of);

}  // namespace
}  // namespace strait::testing
