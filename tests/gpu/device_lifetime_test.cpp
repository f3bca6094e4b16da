// Communicators that are made and destroyed beside other work on the same GPU, and graphs beside calls outside of them.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "gpu/device_side.hpp"
#include "gpu/spin.hpp"

namespace strait::testing {
namespace {

constexpr std::size_t stuck_count = 1 << 20;

/// A kernel on this thread's current device that runs until the object is destroyed, but for 30 s at most.
class OtherWork {
 public:
  OtherWork() {
    STRAIT_EXPECT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&stop_), sizeof *stop_, cudaHostAllocMapped));
    *stop_ = 0;
    STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    STRAIT_EXPECT_CUDA(launch_spin(stop_, 30'000, stream_));
  }
  ~OtherWork() {
    std::atomic_ref(*stop_).store(1);
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
    cudaStreamDestroy(stream_);
    cudaFreeHost(stop_);
  }
  OtherWork(const OtherWork&) = delete;
  OtherWork& operator=(const OtherWork&) = delete;
  bool runs() const { return cudaStreamQuery(stream_) == cudaErrorNotReady; }

 private:
  std::uint32_t* stop_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// Returns a new communicator of all ranks of `comm`.
straitComm_t another(straitComm_t comm, int rank) {
  straitComm_t made = nullptr;
  STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &made, nullptr));
  return made;
}

/// Making, using and destroying a communicator must wait for no other work on the GPU.
void check_beside_other_work(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  const OtherWork other;
  meet_on_host();
  for (int turn = 0; turn < 2; ++turn) {
    straitComm_t made = another(comm, rank);
    CollectiveCase c;
    c.count = 50'000;
    c.seed = static_cast<std::uint64_t>(turn + 1);
    side.check(made, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
    STRAIT_EXPECT_OK(straitCommDestroy(made));
    EXPECT_TRUE(other.runs()) << "turn " << turn;
  }
  meet_on_host();
}

/// Returns the bytes of shared staging memory that this process has mapped. A segment that several ranks of the process
/// have mapped counts once.
std::size_t staging_bytes() {
  std::map<std::string, std::size_t> parts;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t begin = 0, end = 0;
    unsigned long long inode = 0;
    if (line.find("strait-staging") == std::string::npos) continue;
    EXPECT_EQ(std::sscanf(line.c_str(), "%zx-%zx %*s %*s %*s %llu", &begin, &end, &inode), 3) << line;
    parts[std::to_string(inode)] = end - begin;
  }
  std::size_t bytes = 0;
  for (const auto& [inode, part_bytes] : parts) bytes += part_bytes;
  return bytes;
}

/// Destroying the last communicator that uses host memory must not wait for other work either, while another
/// communicator without host memory exists. STRAIT_P2P makes it one of this rank alone.
void check_end_of_host_memory(straitComm_t comm, int rank, int /*ranks*/) {
  const char* transport = nullptr;
  STRAIT_EXPECT_OK(straitCommGetTransport(comm, &transport, nullptr));
  if (std::string(transport) != "cuda_p2p") GTEST_SKIP() << "all go through host memory here";
  straitConfig_t config = test_config();
  STRAIT_EXPECT_CUDA(cudaGetDevice(&config.device));
  straitUniqueId id;
  straitComm_t staged = nullptr;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  meet_on_host();
  if (rank == 0 || threads_to_meet == 0) setenv("STRAIT_P2P", "off", 1);
  meet_on_host();
  STRAIT_EXPECT_OK(straitCommInitRank(&staged, 1, &id, 0, &config));
  meet_on_host();
  EXPECT_GT(staging_bytes(), 0u);
  meet_on_host();
  if (rank == 0 || threads_to_meet == 0) unsetenv("STRAIT_P2P");
  {
    const OtherWork other;
    meet_on_host();
    STRAIT_EXPECT_OK(straitCommDestroy(staged));
    EXPECT_TRUE(other.runs());
    meet_on_host();
  }
}

/// Three communicators together must pin no more host memory than one may, and work.
void check_host_memory(straitComm_t comm, int rank, int ranks) {
  const char* transport = nullptr;
  STRAIT_EXPECT_OK(straitCommGetTransport(comm, &transport, nullptr));
  const bool is_staged = std::string(transport) == "host_staged";
  DeviceSide side(std::size_t{8} << 20);
  straitComm_t more[2] = {another(comm, rank), another(comm, rank)};
  meet_on_host();
  const std::size_t pinned_bytes = staging_bytes();
  EXPECT_LE(pinned_bytes, std::size_t{128} << 20);
  // Copies between GPUs that reach one another keep only a few words in host memory.
  EXPECT_EQ(pinned_bytes > (std::size_t{1} << 20), is_staged);
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{1'000'003}})
    for (straitComm_t each : {comm, more[0], more[1]}) {
      CollectiveCase c;
      c.count = count;
      c.seed = count;
      side.check(each, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
    }
  meet_on_host();
  for (straitComm_t each : more) STRAIT_EXPECT_OK(straitCommDestroy(each));
}

/// Two communicators on one GPU wait for a rank that stays away. Aborting and destroying one must not end the other.
void check_aborts(straitComm_t comm, int rank, int /*ranks*/) {
  straitComm_t stuck[2] = {another(comm, rank), another(comm, rank)};
  cudaStream_t streams[2];
  float* data = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&data, stuck_count * sizeof(float)));
  for (cudaStream_t& stream : streams) STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  meet_on_host();
  if (rank == 0) {
    for (int i = 0; i < 2; ++i)
      STRAIT_EXPECT_OK(straitAllReduce(data, data, stuck_count, straitFloat32, straitSum, stuck[i], streams[i]));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto began = std::chrono::steady_clock::now();
    STRAIT_EXPECT_OK(straitCommAbort(stuck[0]));
    STRAIT_EXPECT_OK(straitCommDestroy(stuck[0]));
    EXPECT_EQ(cudaStreamQuery(streams[1]), cudaErrorNotReady) << "the other one was not to end";
    cudaGetLastError();
    STRAIT_EXPECT_OK(straitCommAbort(stuck[1]));
    STRAIT_EXPECT_OK(straitCommDestroy(stuck[1]));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  }
  meet_on_host();
  if (rank != 0)
    for (straitComm_t each : stuck) {
      straitResult_t error = straitSuccess;
      for (int tries = 0; tries < 10'000 && error == straitSuccess; ++tries) {
        STRAIT_EXPECT_OK(straitCommGetAsyncError(each, &error));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_NE(error, straitSuccess);
      STRAIT_EXPECT_OK(straitCommDestroy(each));
    }
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  meet_on_host();
  cudaFree(data);
}

/// A call of all ranks on its own stream, eagerly or as a graph, and the expected bits.
class Mixed {
 public:
  Mixed(straitComm_t comm, int rank, int ranks, std::size_t count, std::int32_t salt)
      : comm_(comm), count_(count), expected_(count) {
    std::vector<std::int32_t> input(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = [&](int r) { return static_cast<std::int32_t>(i) * salt + r * 1000; };
      input[i] = value(rank);
      for (int r = 0; r < ranks; ++r) expected_[i] += value(r);
    }
    STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    STRAIT_EXPECT_CUDA(cudaMalloc(&input_, bytes()));
    STRAIT_EXPECT_CUDA(cudaMalloc(&output_, bytes()));
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(input_, input.data(), bytes(), cudaMemcpyHostToDevice, stream_));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }
  ~Mixed() {
    cudaFree(input_);
    cudaFree(output_);
    cudaStreamDestroy(stream_);
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }
  Mixed(const Mixed&) = delete;
  Mixed& operator=(const Mixed&) = delete;

  void call() {
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(output_, poison, bytes(), stream_));
    STRAIT_EXPECT_OK(straitAllReduce(input_, output_, count_, straitInt32, straitSum, comm_, stream_));
  }
  void capture(int calls) {
    cudaGraph_t graph = nullptr;
    STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) call();
    STRAIT_EXPECT_CUDA(cudaStreamEndCapture(stream_, &graph));
    STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&graph_, graph, 0));
    STRAIT_EXPECT_CUDA(cudaGraphDestroy(graph));
  }
  void replay() { STRAIT_EXPECT_CUDA(cudaGraphLaunch(graph_, stream_)); }
  std::size_t wrong() const {
    std::vector<std::int32_t> got(count_);
    // First, because a copy that waits keeps ranks on the same GPU from launching what it waits for.
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
    STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), output_, bytes(), cudaMemcpyDeviceToHost));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) wrong += got[i] != expected_[i];
    return wrong;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(std::int32_t); }
  straitComm_t comm_;
  std::size_t count_;
  std::vector<std::int32_t> expected_;
  cudaStream_t stream_ = nullptr;
  std::int32_t *input_ = nullptr, *output_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

/// Calls and two graphs of one communicator on three streams that the program does not order.
void check_mixed(straitComm_t comm, int rank, int ranks) {
  for (const std::size_t count : {std::size_t{3000}, std::size_t{700'000}}) {
    Mixed eager(comm, rank, ranks, count, 3), graph(comm, rank, ranks, count, 7), more(comm, rank, ranks, count, 11);
    meet_on_host();  // device-wide operations may wait for kernels of ranks that share the GPU
    graph.capture(3);
    more.capture(1);
    meet_on_host();
    for (int turn = 0; turn < 60; ++turn) {
      if (turn % 3 != 0) eager.call();
      graph.replay();
      if (turn % 3 != 1) more.replay();
      eager.call();
      EXPECT_EQ(graph.wrong(), 0u) << "graph, turn " << turn << ", " << count;
      EXPECT_EQ(eager.wrong(), 0u) << "eager, turn " << turn << ", " << count;
      EXPECT_EQ(more.wrong(), 0u) << "the other graph, turn " << turn << ", " << count;
    }
    meet_on_host();
  }
}

/// An error of the program invalidates its capture: a Strait call in it must be refused without side effects, so that
/// later calls work.
void check_spoiled_capture(straitComm_t comm, int rank, int ranks) {
  Mixed eager(comm, rank, ranks, 3000, 3);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  meet_on_host();
  STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(straitBarrier(comm, stream), straitInvalidUsage) << straitGetLastError(nullptr);
  EXPECT_NE(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGetLastError();
  for (int turn = 0; turn < 3; ++turn) {
    eager.call();
    EXPECT_EQ(eager.wrong(), 0u) << turn;
  }
  STRAIT_EXPECT_CUDA(cudaStreamDestroy(stream));
  meet_on_host();
}

/// Communicators that are destroyed, or aborted while a call waits, must leave no GPU memory allocated.
void check_leaks(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  const auto meet = [&] {
    STRAIT_EXPECT_OK(straitBarrier(comm, side.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    meet_on_host();
  };
  const auto free_bytes = [&] {
    meet();
    std::size_t free = 0, total = 0;
    STRAIT_EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    meet();
    return free;
  };
  const auto come_and_go = [&](int times) {
    for (int turn = 0; turn < times; ++turn) {
      straitComm_t made = another(comm, rank);
      CollectiveCase c;
      c.count = 50'000;
      c.seed = static_cast<std::uint64_t>(turn + 1);
      side.check(made, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
      const bool aborts = turn % 2 == 1;
      meet();
      if (aborts && rank == 0) {
        const straitResult_t called =
            straitAllReduce(side.send(), side.send(), 1000, straitFloat32, straitSum, made, side.stream());
        EXPECT_TRUE(called == straitSuccess || called == straitAborted)
            << straitGetLastError(made);  // depends on which rank was first
      }
      if (aborts) STRAIT_EXPECT_OK(straitCommAbort(made));
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      STRAIT_EXPECT_OK(straitCommDestroy(made));
    }
  };
  // The first turns allocate memory that the next communicator reuses. Host memory is unpinned only once enough of it
  // has accumulated, and pinned pages take GPU memory for page tables, so what is free goes up and down a little. What
  // communicators do not free would be more after 24 turns.
  constexpr std::size_t page_tables_bytes = std::size_t{8} << 20;
  come_and_go(24);
  const std::size_t before = free_bytes();
  come_and_go(24);
  EXPECT_GE(free_bytes() + page_tables_bytes, before);
}

bool has_context(int device) {
  using GetState = int (*)(int device, unsigned* flags, int* is_active);
  static const auto get_state =
      reinterpret_cast<GetState>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int is_active = 0;
  EXPECT_EQ(get_state(device, &flags, &is_active), 0);
  return is_active != 0;
}

/// A context takes half a GB of GPU memory: a process must have one only on the GPUs of its ranks.
void check_contexts(straitComm_t comm, int rank, int ranks) {
  constexpr std::size_t bytes = 4096;
  void *memory = nullptr, *handle = nullptr;
  straitComm_t half = nullptr;
  int done = 0;
  DeviceSide side(bytes);
  STRAIT_EXPECT_OK(straitMemAllocDevice(&memory, bytes, rank % gpu_count()));
  STRAIT_EXPECT_OK(straitCommRegister(comm, memory, bytes, &handle));
  STRAIT_EXPECT_OK(straitCommSplit(comm, rank % 2, rank, &half, nullptr));
  STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.send(), 100, straitFloat32, straitSum, half, side.stream()));
  STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.send(), 100, straitFloat32, straitSum, comm, side.stream()));
  STRAIT_EXPECT_OK(straitCommSynchronize(comm));
  STRAIT_EXPECT_OK(straitCommQuery(comm, &done));
  EXPECT_EQ(done, 1);
  STRAIT_EXPECT_OK(straitCommDestroy(half));
  STRAIT_EXPECT_OK(straitCommDeregister(comm, handle));
  STRAIT_EXPECT_OK(straitMemFree(memory));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for threads that watch the communicator
  const bool are_threads = threads_to_meet != 0;
  for (int device = 0; device < gpu_count(); ++device) {
    const bool is_used = are_threads ? device < ranks : device == rank % gpu_count();
    EXPECT_EQ(has_context(device), is_used) << "GPU " << device << " of rank " << rank;
  }
}

using DeviceLifetime = DeviceRanks;
TEST_P(DeviceLifetime, NothingIsLeftOnTheGpu) { run(check_leaks); }
TEST_P(DeviceLifetime, HasContextsWhereItsRanksAre) { run(check_contexts); }
TEST_P(DeviceLifetime, KeepsToTheHostMemoryOfAll) { run(check_host_memory); }
TEST_P(DeviceLifetime, BesideOtherWork) { run(check_beside_other_work); }
TEST_P(DeviceLifetime, EndsHostMemoryBesideOtherWork) { run(check_end_of_host_memory); }
TEST_P(DeviceLifetime, AbortsEachForItself) { run(check_aborts); }
TEST_P(DeviceLifetime, GraphsBesideCalls) { run(check_mixed); }
TEST_P(DeviceLifetime, RefusesCallsIntoACaptureThatAnErrorEnded) { run(check_spoiled_capture); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceLifetime, ::testing::Values(Setup{false, 2}, Setup{false, 3}, Setup{true, 2}),
                         name_of);

}  // namespace
}  // namespace strait::testing
