#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <thread>
#include <vector>

#include "host/collective_case.hpp"
#include "support/ranks.hpp"
#include "support/reference.hpp"

/// Ranks on GPUs and their collectives, for tests.
namespace strait::testing {

/// The rank that this thread runs; -1: none.
inline thread_local int rank_of_thread = -1;
/// Prints CUDA calls that took long, and on which rank: where ranks share a GPU, one may hold up the others.
class SlowCall {
 public:
  explicit SlowCall(const char* what) : what_(what) {}
  ~SlowCall() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
    if (took > std::chrono::seconds(5))
      std::fprintf(stderr, "rank %d of the test: %s took %.1f s\n", rank_of_thread, what_, took.count());
  }
  SlowCall(const SlowCall&) = delete;
  SlowCall& operator=(const SlowCall&) = delete;

 private:
  const char* what_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

#define STRAIT_EXPECT_CUDA(call)                                                             \
  do {                                                                                       \
    const ::strait::testing::SlowCall timed(#call);                                          \
    const cudaError_t cuda_result = (call);                                                  \
    EXPECT_EQ(cuda_result, cudaSuccess) << #call << ": " << cudaGetErrorString(cuda_result); \
  } while (false)

inline constexpr std::size_t guard_bytes = 256;
inline constexpr unsigned char poison = 0xa5;

/// A barrier on the host for ranks that are threads. For processes it does nothing.
inline std::atomic<int> threads_to_meet = 0, threads_met = 0;
inline void meet_on_host() {
  if (threads_to_meet == 0) return;
  const int turn = threads_met++ / threads_to_meet;
  while (threads_met < (turn + 1) * threads_to_meet) std::this_thread::yield();
}

/// A graph of what `record` enqueues on the stream. All ranks must create and destroy theirs at the same time: where
/// they share a GPU, either may wait for kernels of other ranks, which must be able to finish then.
class Graph {
 public:
  template <class Record>
  Graph(cudaStream_t stream, Record&& record) {
    cudaGraph_t graph = nullptr;
    STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    record();
    STRAIT_EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    const std::vector<cudaGraphNode_t> nodes = nodes_of(graph);
    kernels_ = static_cast<int>(std::count_if(nodes.begin(), nodes.end(), is_kernel));
    meet_on_host();
    STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&ready_, graph, 0));
    STRAIT_EXPECT_CUDA(cudaGraphDestroy(graph));
    // Otherwise the first launch uploads it, for which the driver may wait for kernels of ranks on the same GPU.
    if (!nodes.empty()) STRAIT_EXPECT_CUDA(cudaGraphUpload(ready_, stream));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
    meet_on_host();
  }
  ~Graph() {
    meet_on_host();
    cudaGraphExecDestroy(ready_);
    meet_on_host();
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { STRAIT_EXPECT_CUDA(cudaGraphLaunch(ready_, stream)); }
  int kernels() const { return kernels_; }

 private:
  static std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
    std::size_t count = 0;
    STRAIT_EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    if (count != 0) STRAIT_EXPECT_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
    return nodes;
  }
  /// Uses the driver API, because the runtime does not know the type of every node.
  static bool is_kernel(cudaGraphNode_t node) {
    static const auto type_of = reinterpret_cast<decltype(&cuGraphNodeGetType)>(
        ::dlsym(::dlopen("libcuda.so.1", RTLD_LAZY), "cuGraphNodeGetType"));
    CUgraphNodeType type{};
    EXPECT_EQ(type_of(node, &type), CUDA_SUCCESS);
    return type == CU_GRAPH_NODE_TYPE_KERNEL;
  }

  cudaGraphExec_t ready_ = nullptr;
  int kernels_ = 0;
};

/// How a case is run: directly on the stream, or captured in a graph that is then launched twice.
enum class Mode { eager, graph };

/// One rank's device, stream and buffers, reused from case to case. All ranks must create and destroy theirs at the
/// same time: cudaMalloc() and cudaFree() may wait for kernels of ranks on the same GPU, and meanwhile keep those ranks
/// from launching what such a kernel waits for.
class DeviceSide {
 public:
  /// `shared`: allocate buffers that can be registered.
  explicit DeviceSide(std::size_t buffer_bytes, bool shared = false)
      : bytes_(buffer_bytes + 2 * guard_bytes), shared_(shared) {
    STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (std::byte** buffer : {&send_, &receive_}) *buffer = allocate(bytes_, shared);
    scalar_ = allocate(sizeof(std::uint64_t), false);
    meet_on_host();
  }
  ~DeviceSide() {
    meet_on_host();
    for (std::byte* buffer : {send_, receive_}) release(buffer, shared_);
    release(scalar_, false);
    cudaStreamDestroy(stream_);
  }
  static std::byte* allocate(std::size_t bytes, bool shared) {
    void* memory = nullptr;
    int device = 0;
    STRAIT_EXPECT_CUDA(cudaGetDevice(&device));
    if (shared)
      STRAIT_EXPECT_OK(straitMemAllocDevice(&memory, bytes, device));
    else
      STRAIT_EXPECT_CUDA(cudaMalloc(&memory, bytes));
    return static_cast<std::byte*>(memory);
  }
  static void release(std::byte* memory, bool shared) {
    if (shared)
      STRAIT_EXPECT_OK(straitMemFree(memory));
    else
      STRAIT_EXPECT_CUDA(cudaFree(memory));
  }
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  void check(straitComm_t comm, std::uint32_t rank, std::uint32_t ranks, const CollectiveCase& c, Mode mode) {
    const BufferBytes sizes = buffer_bytes(c, ranks);
    const std::vector<Bytes> inputs = random_inputs(c, ranks);
    std::vector<Bytes> scalars;
    for (std::uint32_t r = 0; r < ranks; ++r) scalars.push_back(random_scalar(c, r));
    auto op = static_cast<straitRedOp_t>(c.op);
    if (c.op == ReduceOp::premul_sum)
      STRAIT_EXPECT_OK(straitRedOpCreatePreMulSum(
          &op, has_scalar_address(c) ? scalar_ : scalars[rank].data(), static_cast<straitDataType_t>(c.type),
          has_scalar_address(c) ? straitScalarDevice : straitScalarHostImmediate, comm));
    const std::size_t in_place_bytes = std::max(sizes.send, sizes.receive);
    ASSERT_LE(in_place_bytes + c.misalignment_bytes + 2 * guard_bytes, bytes_);
    const bool inside_receive = c.in_place && sizes.receive > sizes.send;
    std::byte* const send = send_ + guard_bytes + c.misalignment_bytes;
    std::byte* const receive = receive_ + guard_bytes + c.misalignment_bytes;
    std::byte* const input = send + (inside_receive ? own_offset(c, rank) : 0);
    std::byte* const output = !c.in_place ? receive : send + (inside_receive ? 0 : own_offset(c, rank));
    const auto prepare = [&] {
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(send_, poison, bytes_, stream_));
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(receive_, poison, bytes_, stream_));
      STRAIT_EXPECT_CUDA(
          cudaMemcpyAsync(scalar_, scalars[rank].data(), scalars[rank].size(), cudaMemcpyHostToDevice, stream_));
      STRAIT_EXPECT_CUDA(
          cudaMemcpyAsync(input, inputs[rank].data(), inputs[rank].size(), cudaMemcpyHostToDevice, stream_));
    };
    const auto call = [&] { return call_collective(c, input, output, op, comm, stream_); };
    if (mode == Mode::eager) {
      prepare();
      STRAIT_EXPECT_OK(call());
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
    } else {
      const Graph graph(stream_, [&] { STRAIT_EXPECT_OK(call()); });
      kernels_in_graph_ = graph.kernels();
      for (int replay = 0; replay < 2; ++replay) {
        prepare();
        graph.launch(stream_);
        STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
      }
    }
    const Bytes expected = expected_output(c, inputs, scalars, rank);
    expect_contents(c, rank, ranks, inputs, input - send_, output - (c.in_place ? send_ : receive_), expected);
    if (c.op == ReduceOp::premul_sum) STRAIT_EXPECT_OK(straitRedOpDestroy(op, comm));
  }

  cudaStream_t stream() const { return stream_; }
  std::byte* send() const { return send_; }
  std::byte* receive() const { return receive_; }
  std::size_t bytes() const { return bytes_; }
  /// Returns the number of kernels in the graph of the last captured call.
  int kernels_in_graph() const { return kernels_in_graph_; }

 private:
  /// Returns the inputs of all ranks. Uses a thread for each, because generating them takes longer than the call.
  static std::vector<Bytes> random_inputs(const CollectiveCase& c, std::uint32_t ranks) {
    std::vector<Bytes> inputs(ranks);
    std::vector<std::jthread> makers;
    for (std::uint32_t r = 0; r < ranks; ++r) makers.emplace_back([&, r] { inputs[r] = random_input(c, ranks, r); });
    for (std::jthread& maker : makers) maker.join();
    return inputs;
  }
  /// Expects the reference's result, an unchanged input, and nothing else written.
  void expect_contents(const CollectiveCase& c, std::uint32_t rank, std::uint32_t ranks,
                       const std::vector<Bytes>& inputs, std::ptrdiff_t input_offset, std::ptrdiff_t output_offset,
                       const Bytes& expected) {
    const auto fetch = [&](Bytes& copy, const std::byte* from) {
      copy.resize(bytes_);
      STRAIT_EXPECT_CUDA(cudaMemcpy(copy.data(), from, bytes_, cudaMemcpyDeviceToHost));
    };
    fetch(sent_, send_);
    fetch(received_, receive_);
    Bytes& with_output = c.in_place ? sent_ : received_;
    const std::span<std::byte> got(with_output.data() + output_offset, expected.size());
    EXPECT_EQ(first_difference(expected, got, c.type, inputs), "")
        << describe(c) << " on rank " << rank << " of " << ranks;
    std::fill(got.begin(), got.end(), std::byte{poison});
    const std::span<std::byte> input(sent_.data() + input_offset, inputs[rank].size());
    if (!c.in_place) {
      EXPECT_TRUE(std::equal(inputs[rank].begin(), inputs[rank].end(), input.begin()))
          << describe(c) << " changed its input";
    }
    std::fill(input.begin(), input.end(), std::byte{poison});
    EXPECT_EQ(first_written(sent_), bytes_) << describe(c) << " wrote beside its input, rank " << rank;
    EXPECT_EQ(first_written(received_), bytes_) << describe(c) << " wrote beside its output, rank " << rank;
  }
  /// Returns the offset of the first byte that is no longer poison; the size of `memory` if there is none.
  static std::size_t first_written(const Bytes& memory) {
    const bool is_poison = memory[0] == std::byte{poison} &&
                           std::memcmp(memory.data(), memory.data() + 1, memory.size() - 1) == 0;  // far faster
    if (is_poison) return memory.size();
    const auto differs = [](std::byte each) { return each != std::byte{poison}; };
    return static_cast<std::size_t>(std::find_if(memory.begin(), memory.end(), differs) - memory.begin());
  }

  std::size_t bytes_;
  bool shared_;
  int kernels_in_graph_ = 0;
  cudaStream_t stream_ = nullptr;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  std::byte* scalar_ = nullptr;  ///< scalar of a premul_sum that reads it when it runs
  Bytes sent_, received_;  ///< host copies of the buffers; kept, because allocating them would take longer than a case
};

inline int gpu_count() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return 0;
  return devices;
}

/// Joins a rank, runs `body` and leaves. Where there are fewer GPUs than ranks they share GPUs: threads use so few
/// blocks that all ranks run at the same time; processes are time-sliced.
inline void join_on_device(const straitUniqueId& id, int rank, int ranks, const RankBody& body,
                           straitWireFormat_t wire = straitWireDefault) {
  const int gpus = gpu_count();
  rank_of_thread = rank;
  straitConfig_t config = test_config();
  config.device = rank % gpus;
  config.wire = wire;
  if (gpus < ranks) config.max_sms = 8;
  STRAIT_EXPECT_CUDA(cudaSetDevice(config.device));
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
  if (comm == nullptr) return;
  body(comm, rank, ranks);
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

inline void run_on_devices(bool as_processes, int ranks, const RankBody& body,
                           straitWireFormat_t wire = straitWireDefault) {
  if (as_processes) {
    LateId id;
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank)
      children.push_back(fork_rank([&] { join_on_device(id.await(), rank, ranks, body, wire); }));
    id.make();
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)], 200000), 0) << "rank " << rank;
    return;
  }
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { join_on_device(id, rank, ranks, body, wire); });
}

/// Returns the number of GPUs, asked for in a child: a process that has used CUDA must not fork ranks that will use it.
inline int gpus_in_a_child() {
  const int status = wait_for(fork_rank([] { _exit(gpu_count()); }), 60000);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// Returns whether ranks are time-sliced on a GPU in turns of milliseconds, so that one call takes several turns.
inline bool takes_turns(int ranks) { return threads_to_meet == 0 && gpu_count() < ranks; }

struct Setup {
  bool as_processes;
  int ranks;
  friend std::ostream& operator<<(std::ostream& out, const Setup& setup) {
    return out << setup.ranks << (setup.as_processes ? " processes" : " threads");
  }
};
/// A test whose ranks are threads or processes.
class DeviceRanks : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    gpus_ = gpus_in_a_child();
    if (gpus_ == 0) GTEST_SKIP() << "needs a GPU, here is none";
    setenv("STRAIT_SHARE_GPUS", gpus_ < GetParam().ranks ? "1" : "0", 1);
  }
  void TearDown() override { unsetenv("STRAIT_SHARE_GPUS"); }
  void run(const RankBody& body, straitWireFormat_t wire = straitWireDefault) {
    if (GetParam().as_processes) return run_on_devices(true, GetParam().ranks, body, wire);
    // In a child as well, so that this process never uses CUDA and later tests may fork.
    const auto as_threads = [&] {
      // Streams that share a hardware queue wait for one another; where ranks share a GPU, that would deadlock.
      if (GetParam().ranks > gpus_) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
      threads_to_meet = GetParam().ranks;
      run_on_devices(false, GetParam().ranks, body, wire);
    };
    EXPECT_EQ(wait_for(fork_rank(as_threads), 200000), 0);
  }

 private:
  int gpus_ = 0;
};
inline std::string name_of(const ::testing::TestParamInfo<Setup>& test) {
  return std::string(test.param.as_processes ? "Processes" : "Threads") + std::to_string(test.param.ranks);
}

}  // namespace strait::testing
