// How a communicator of GPUs reports completion to threads and in which state it leaves them, by the public interface.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "gpu/device_side.hpp"

namespace strait::testing {
namespace {

/// Blocks a stream: what is enqueued next does not begin before let_go().
class Hold {
 public:
  explicit Hold(cudaStream_t stream) {
    const auto wait = [](void* may) {
      while (!static_cast<std::atomic<bool>*>(may)->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    STRAIT_EXPECT_CUDA(cudaLaunchHostFunc(stream, wait, &may_go_));
  }
  void let_go() { may_go_ = true; }

 private:
  std::atomic<bool> may_go_ = false;
};

void expect_done(straitComm_t comm, bool expected) {
  int done = -1;
  STRAIT_EXPECT_OK(straitCommQuery(comm, &done));
  EXPECT_EQ(done, expected ? 1 : 0);
}

/// Expects that what `enqueue` puts on the stream is not done while the stream is blocked, and is afterwards.
void expect_done_when_let_go(straitComm_t comm, cudaStream_t stream, const std::function<void()>& enqueue) {
  expect_done(comm, true);
  Hold hold(stream);
  enqueue();
  expect_done(comm, false);
  hold.let_go();
  STRAIT_EXPECT_OK(straitCommSynchronize(comm));
  expect_done(comm, true);
}

void all_reduce(straitComm_t comm, const DeviceSide& side) {
  STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.receive(), 100, straitFloat32, straitSum, comm, side.stream()));
}

void check_query(straitComm_t comm, int /*rank*/, int /*ranks*/) {
  const DeviceSide side(4096);
  expect_done_when_let_go(comm, side.stream(), [&] { all_reduce(comm, side); });
}

/// A graph that was only captured is nothing to wait for.
void check_query_of_graphs(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(4096);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeThreadLocal));
  all_reduce(comm, side);
  STRAIT_EXPECT_CUDA(cudaStreamEndCapture(side.stream(), &graph));
  STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  expect_done_when_let_go(comm, side.stream(), [&] { STRAIT_EXPECT_CUDA(cudaGraphLaunch(executable, side.stream())); });
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  CollectiveCase c;
  c.count = 500;
  side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
  STRAIT_EXPECT_CUDA(cudaGraphExecDestroy(executable));
  STRAIT_EXPECT_CUDA(cudaGraphDestroy(graph));
}

/// After a call a thread has the same device selected as before. A thread that belongs to Strait (straitAdoptThread())
/// keeps the device that the call needed.
void check_devices_of_threads(straitComm_t comm, int rank, int /*ranks*/) {
  if (gpu_count() < 2) GTEST_SKIP() << "there is no other GPU to select";
  const int own = rank % gpu_count(), other = (rank + 1) % gpu_count();
  for (const bool adopts : {false, true}) {
    std::jthread([&] {
      STRAIT_EXPECT_CUDA(cudaSetDevice(other));
      if (adopts) straitAdoptThread();
      void *memory = nullptr, *handle = nullptr;
      STRAIT_EXPECT_OK(straitMemAllocDevice(&memory, 4096, own));
      STRAIT_EXPECT_OK(straitCommRegister(comm, memory, 4096, &handle));
      STRAIT_EXPECT_OK(straitCommDeregister(comm, handle));
      STRAIT_EXPECT_OK(straitMemFree(memory));
      int selected = -1;
      STRAIT_EXPECT_CUDA(cudaGetDevice(&selected));
      EXPECT_EQ(selected, adopts ? own : other);
    });
    meet_on_host();
  }
}

using DeviceThreads = DeviceRanks;
TEST_P(DeviceThreads, HearWhetherCallsAreDone) { run(check_query); }
TEST_P(DeviceThreads, HearWhetherGraphsAreDone) {
  for (const char* mixes : {"1", "0"}) {
    setenv("STRAIT_GRAPH_MIXING", mixes, 1);
    run(check_query_of_graphs);
  }
  unsetenv("STRAIT_GRAPH_MIXING");
}
TEST_P(DeviceThreads, KeepTheirDevices) { run(check_devices_of_threads); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceThreads, ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{true, 2}),
                         name_of);

}  // namespace
}  // namespace strait::testing
