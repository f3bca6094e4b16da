// Injects random faults into GPU ranks at random moments of calls by kernels, copies and graphs.
#include <cuda_runtime.h>

#include "fault/hunt.hpp"

namespace strait::testing::hunt {
namespace {

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError())

/// Returns what `ask` returns in a child: a process that has used CUDA must not fork ranks that will use it.
template <class F>
std::uint64_t asked_in_a_child(F&& ask) {
  auto* const answer = static_cast<std::uint64_t*>(
      mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  wait_for(fork_rank([&] { *answer = ask(); }), 60'000);
  const std::uint64_t found = *answer;
  munmap(answer, sizeof *answer);
  return found;
}

int gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/// Returns the free memory of all GPUs together.
std::uint64_t free_bytes() {
  std::uint64_t all = 0;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    std::size_t free = 0, total = 0;
    EXPECT_CUDA(cudaSetDevice(gpu));
    EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    all += free;
  }
  return all;
}

class DeviceSide {
 public:
  DeviceSide(int rank, const Round& round) : round_(round), device_(rank % gpus()) {
    EXPECT_CUDA(cudaSetDevice(device_));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (std::byte** memory : {&input_, &output_}) EXPECT_CUDA(cudaMalloc(memory, round.limits.calls.most_bytes));
    STRAIT_EXPECT_OK(straitMemAllocDevice(&memory_, memory_bytes, device_));
  }
  straitConfig_t config() const {
    straitConfig_t config = round_.config();
    config.device = device_;
    return config;
  }
  straitStream_t stream() const { return stream_; }
  void set(const Bytes& input) {
    EXPECT_CUDA(cudaMemcpyAsync(input_, input.data(), input.size(), cudaMemcpyDefault, stream_));
    EXPECT_CUDA(cudaMemsetAsync(output_, 0xa5, round_.limits.calls.most_bytes, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }
  Bytes get(std::size_t count) const {
    Bytes output(count);
    EXPECT_CUDA(cudaMemcpyAsync(output.data(), output_, count, cudaMemcpyDefault, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
    return output;
  }
  /// Makes a call and returns its error, which is read after the stream has been waited for: no error then means that
  /// the results are there.
  straitResult_t run(const Call& call, straitComm_t comm, int rank) {
    if (call.is_set_up()) return enqueue(call, comm, rank);
    const straitResult_t called = call.in_graph ? replay(call, comm, rank) : enqueue(call, comm, rank);
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
    straitResult_t error = straitSuccess;
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
    EXPECT_TRUE(called == straitSuccess || called == error) << called << ", then " << error;
    return error;
  }

 private:
  straitResult_t enqueue(const Call& call, straitComm_t comm, int rank) {
    return make(call, {input_, output_, memory_, memory_bytes}, comm, rank, stream_);
  }
  straitResult_t replay(const Call& call, straitComm_t comm, int rank) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    const straitResult_t called = enqueue(call, comm, rank);
    EXPECT_CUDA(cudaStreamEndCapture(stream_, &graph));
    if (called == straitSuccess) {
      EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
      EXPECT_CUDA(cudaGraphLaunch(ready, stream_));
      EXPECT_CUDA(cudaStreamSynchronize(stream_));
      EXPECT_CUDA(cudaGraphExecDestroy(ready));
    }
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return called;
  }

  static constexpr std::size_t memory_bytes = std::size_t{2} << 20;
  const Round& round_;
  int device_;
  void* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::byte *input_ = nullptr, *output_ = nullptr;
};

/// Uses one rank per GPU, at most four; where there is only one GPU, two ranks share it.
TEST(DeviceFaultHunt, EveryRankIsToldAndNothingStays) {
  const auto there_are = static_cast<int>(asked_in_a_child([] { return static_cast<std::uint64_t>(gpus()); }));
  if (there_are == 0) GTEST_SKIP() << "needs a GPU, here is none";
  const std::uint64_t free_before = asked_in_a_child(free_bytes);
  setenv("STRAIT_SHARE_GPUS", there_are < 2 ? "1" : "0", 1);
  const CallLimits calls{
      .ranks = std::clamp(there_are, 2, 4), .most_bytes = std::size_t{16} << 20, .most_elements = std::size_t{4} << 20};
  // Kernels name the rank that they wait for at once, copies and CPU threads only after waiting for ten seconds.
  const bool by_kernels = getenv("STRAIT_MAX_SMS") == nullptr && getenv("STRAIT_COPY_ENGINE_BYTES") == nullptr &&
                          getenv("STRAIT_CPU_REDUCE_BYTES") == nullptr;
  run<DeviceSide>({.calls = calls,
                   .left_within = milliseconds(by_kernels ? 1000 : 12'000),
                   .differs_within = milliseconds(by_kernels ? 4000 : 12'000),
                   .deadline_ms = 1000},
                  20);
  EXPECT_GE(asked_in_a_child(free_bytes) + (std::uint64_t{64} << 20), free_before) << "bytes of GPU memory stay";
}

}  // namespace
}  // namespace strait::testing::hunt
