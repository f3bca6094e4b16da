// Shared by tests of failures: ranks on GPUs, each a process, on GPUs that all reach one another or in islands.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "fault/rank_processes.hpp"

namespace strait::testing {

inline int gpus_in_a_child() {
  // A process that has used CUDA must not fork ranks that will.
  const int status = wait_for(fork_rank([] {
                                int devices = 0;
                                _exit(cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0);
                              }),
                              60'000);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// Tests of failures. With parameter `true` the ranks form islands.
class DeviceFaults : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const int gpus = gpus_in_a_child();
    if (gpus == 0) GTEST_SKIP() << "needs a GPU, here is none";
    ranks_ = std::clamp(gpus, GetParam() ? 3 : 2, 4);
    setenv("STRAIT_SHARE_GPUS", gpus < ranks_ ? "1" : "0", 1);
    if (!GetParam()) return;
    if (std::getenv("STRAIT_P2P") != nullptr) GTEST_SKIP() << "STRAIT_P2P is set";
    setenv("STRAIT_P2P", ranks_ == 3 ? "0-1" : "0-1,2-3", 1);
    is_set_ = true;
  }
  void TearDown() override {
    if (is_set_) unsetenv("STRAIT_P2P");
    unsetenv("STRAIT_SHARE_GPUS");
  }
  int ranks_ = 0;

 private:
  bool is_set_ = false;
};

/// A rank's stream, memory and communicator; the communicator is null if joining failed.
struct DeviceSide {
  DeviceSide(const straitUniqueId& id, int rank, int ranks, Report& report, std::int64_t timeout_ms = 0) {
    int gpus = 0;
    EXPECT_EQ(cudaGetDeviceCount(&gpus), cudaSuccess);
    straitConfig_t config = test_config();
    config.device = rank % gpus;  // with fewer GPUs than ranks, ranks share them
    EXPECT_EQ(cudaSetDevice(config.device), cudaSuccess);
    config.timeout_ms = timeout_ms;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data, 0, bytes, stream), cudaSuccess);
    comm = join(id, rank, ranks, report, config);
  }
  straitResult_t all_reduce(std::size_t count, straitRedOp_t op = straitSum) const {
    return straitAllReduce(data, data, count, straitInt32, op, comm, stream);
  }
  /// Returns all_reduce() captured as a graph.
  cudaGraphExec_t captured(std::size_t count, straitRedOp_t op = straitSum) const {
    return captured([&] { STRAIT_EXPECT_OK(all_reduce(count, op)); });
  }
  /// Returns a graph of what `record` enqueues on the stream.
  template <class Record>
  requires std::invocable<Record> cudaGraphExec_t captured(Record&& record)
  const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    record();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return ready;
  }
  /// Returns what the flight recorder knows of `rank`.
  nlohmann::json record(int rank) const {
    const std::string path = "/tmp/strait_faults_" + std::to_string(getpid());
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, path.c_str()));
    std::ifstream file(path);
    auto json = nlohmann::json::parse(file);
    std::filesystem::remove(path);
    return json.at("seen").at(static_cast<std::size_t>(rank));
  }
  /// Waits for the stream, then until the communicator reports a failure. Returns that error, or success after
  /// `timeout_ms`.
  straitResult_t await_error(int timeout_ms) const {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    straitResult_t error = straitSuccess;
    const auto deadline = Clock::now() + milliseconds(timeout_ms);
    while (error == straitSuccess && Clock::now() < deadline) {
      STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
      std::this_thread::sleep_for(milliseconds(1));
    }
    return error;
  }

  static constexpr std::size_t bytes = std::size_t{64} << 20;
  cudaStream_t stream = nullptr;
  std::int32_t* data = nullptr;
  straitComm_t comm = nullptr;
};

}  // namespace strait::testing
