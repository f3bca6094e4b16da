// Every collective, type, operation and shape of buffer between GPU ranks, through the public interface, bit by bit.
#include "gpu/device_checks.hpp"

namespace strait::testing {
namespace {

/// A call waits for those before it on whatever stream, also where another one was recorded into a graph in between, or
/// had nothing to do.
void check_order(straitComm_t comm, int /*rank*/, int ranks) {
  if (ranks == 1) return;  // in place, nothing is to be done
  DeviceSide first(4096), recorded(4096), other(4096);
  void* buffer = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&buffer, 4096));
  meet_on_host();  // what allocates may wait for kernels of ranks on the same GPU, and those for the one that does
  const auto call = [&](const DeviceSide& on) {
    STRAIT_EXPECT_OK(straitAllReduce(buffer, buffer, 64, straitInt32, straitMax, comm, on.stream()));
  };
  const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  for (const DeviceSide* then : {&other, &recorded}) {
    STRAIT_EXPECT_CUDA(cudaLaunchHostFunc(first.stream(), sleep, nullptr));
    call(first);
    cudaGraph_t graph = nullptr;
    STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(recorded.stream(), cudaStreamCaptureModeThreadLocal));
    call(recorded);
    STRAIT_EXPECT_CUDA(cudaStreamEndCapture(recorded.stream(), &graph));
    call(*then);
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(then->stream()));
    STRAIT_EXPECT_CUDA(cudaStreamQuery(first.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(first.stream()));
    cudaGraphDestroy(graph);
  }
  // Also a call that has nothing to do: what follows on another stream waits for what was before it.
  call(first);
  STRAIT_EXPECT_CUDA(cudaLaunchHostFunc(other.stream(), sleep, nullptr));
  STRAIT_EXPECT_OK(straitAllReduce(buffer, buffer, 0, straitInt32, straitMax, comm, other.stream()));
  call(first);
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(first.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamQuery(other.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(other.stream()));
  cudaFree(buffer);
}

using DeviceCollectives = DeviceRanks;
TEST_P(DeviceCollectives, AllShapes) {
  run([](straitComm_t comm, int rank, int ranks) { check_shapes(comm, rank, ranks); });
}
TEST_P(DeviceCollectives, AllTypesAndOperations) {
  run([](straitComm_t comm, int rank, int ranks) { check_arithmetic(comm, rank, ranks); });
}
TEST_P(DeviceCollectives, Messages) { run(check_messages); }
TEST_P(DeviceCollectives, AllToAllV) { run(check_all_to_all_v); }
/// Over NVLink, where most messages go as lines, few blocks send the longer ones in bulk.
TEST_P(DeviceCollectives, MessagesOfFewBlocks) {
  setenv("STRAIT_MAX_SMS", "4", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    check_messages(comm, rank, ranks);
    check_all_to_all_v(comm, rank, ranks);
  });
  unsetenv("STRAIT_MAX_SMS");
}
TEST_P(DeviceCollectives, Repeats) { run(check_repeats); }
TEST_P(DeviceCollectives, Order) { run(check_order); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{false, 3}, Setup{false, 4},
                                           Setup{true, 2}, Setup{true, 4}, Setup{false, 8}),
                         name_of);

}  // namespace
}  // namespace strait::testing
