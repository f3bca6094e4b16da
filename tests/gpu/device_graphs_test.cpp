// Captured calls used as XLA uses them: a capture into a graph of the program's, that graph as a child node of another
// graph, and a child that is replaced by a new capture.
#include "gpu/device_checks.hpp"

namespace strait::testing {
namespace {

constexpr std::size_t count = 50'000;

/// One rank's values, and a graph with one child graph that sums them.
class Child {
 public:
  Child(straitComm_t comm, const DeviceSide& side, int rank, int ranks)
      : comm_(comm), side_(side), rank_(rank), ranks_(ranks) {}
  ~Child() {
    meet_on_host();
    cudaGraphExecDestroy(ready_);
    cudaGraphDestroy(parent_);
    meet_on_host();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void make() {
    cudaGraph_t child = capture(0);
    STRAIT_EXPECT_CUDA(cudaGraphCreate(&parent_, 0));
    STRAIT_EXPECT_CUDA(cudaGraphAddChildGraphNode(&node_, parent_, nullptr, 0, child));
    STRAIT_EXPECT_CUDA(cudaGraphDestroy(child));
    meet_on_host();
    STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&ready_, parent_, 0));
    STRAIT_EXPECT_CUDA(cudaGraphUpload(ready_, side_.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side_.stream()));
    meet_on_host();
  }
  void replace(int place) {
    cudaGraph_t child = capture(place);
    STRAIT_EXPECT_CUDA(cudaGraphExecChildGraphNodeSetParams(ready_, node_, child));
    STRAIT_EXPECT_CUDA(cudaGraphDestroy(child));
  }
  /// Launches the graph and checks the sums, at the place that the child now writes to.
  void check(int place, int turn) {
    const std::vector<std::int32_t> mine(count, rank_ + turn);
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(side_.receive(), poison, side_.bytes(), side_.stream()));
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(input(place), mine.data(), bytes, cudaMemcpyHostToDevice, side_.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side_.stream()));
    meet_on_host();
    STRAIT_EXPECT_CUDA(cudaGraphLaunch(ready_, side_.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side_.stream()));
    Bytes received(side_.bytes());
    STRAIT_EXPECT_CUDA(cudaMemcpy(received.data(), side_.receive(), received.size(), cudaMemcpyDeviceToHost));
    Bytes expected(side_.bytes(), std::byte{poison});
    const std::vector<std::int32_t> sums(count, ranks_ * (ranks_ - 1) / 2 + ranks_ * turn);
    std::memcpy(expected.data() + (output(place) - side_.receive()), sums.data(), bytes);
    EXPECT_TRUE(received == expected) << "place " << place << ", turn " << turn << ", rank " << rank_;
  }

 private:
  static constexpr std::size_t bytes = count * sizeof(std::int32_t);
  std::byte* input(int place) const { return side_.send() + static_cast<std::size_t>(place) * bytes; }
  std::byte* output(int place) const { return side_.receive() + static_cast<std::size_t>(place) * bytes; }
  cudaGraph_t capture(int place) {
    cudaGraph_t graph = nullptr, ended = nullptr;
    STRAIT_EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    STRAIT_EXPECT_CUDA(
        cudaStreamBeginCaptureToGraph(side_.stream(), graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    STRAIT_EXPECT_OK(
        straitAllReduce(input(place), output(place), count, straitInt32, straitSum, comm_, side_.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamEndCapture(side_.stream(), &ended));
    EXPECT_EQ(ended, graph);
    return graph;
  }

  straitComm_t comm_;
  const DeviceSide& side_;
  int rank_, ranks_;
  cudaGraph_t parent_ = nullptr;
  cudaGraphNode_t node_ = nullptr;
  cudaGraphExec_t ready_ = nullptr;
};

/// Only one rank captures again, with other buffers.
void check_child(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  Child child(comm, side, rank, ranks);
  child.make();
  for (int turn = 0; turn < 2; ++turn) child.check(0, turn);
  for (int place : {1, 2, 0}) {
    if (rank == 0) child.replace(place);
    meet_on_host();
    for (int turn = 2; turn < 4; ++turn) child.check(rank == 0 ? place : 0, turn);
  }
}

using DeviceGraphs = DeviceRanks;
TEST_P(DeviceGraphs, AChildIsReplacedByANewCapture) { run(check_child); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceGraphs,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{true, 2}, Setup{true, 4}), name_of);

}  // namespace
}  // namespace strait::testing
