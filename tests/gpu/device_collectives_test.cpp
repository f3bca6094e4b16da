// Every collective, type, operation and shape of buffer between GPU ranks through the public interface, compared bit by
// bit.
#include "executor/cuda/virtual_memory.hpp"
#include "gpu/device_checks.hpp"

#include <utility>
#include <vector>

namespace strait::testing {
namespace {

/// A call must wait for earlier calls on any stream, even if another call was captured in between, or had nothing to
/// do.
void check_order(straitComm_t comm, int /*rank*/, int ranks) {
  if (ranks == 1) return;  // in place, there is nothing to do
  DeviceSide first(4096), recorded(4096), other(4096);
  void* buffer = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&buffer, 4096));
  meet_on_host();  // allocating may wait for kernels of ranks that share the GPU, and these for this rank
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
  // A call that has nothing to do also counts: later calls on other streams wait for what its stream did before it.
  call(first);
  STRAIT_EXPECT_CUDA(cudaLaunchHostFunc(other.stream(), sleep, nullptr));
  STRAIT_EXPECT_OK(straitAllReduce(buffer, buffer, 0, straitInt32, straitMax, comm, other.stream()));
  call(first);
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(first.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamQuery(other.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(other.stream()));
  meet_on_host();
  cudaFree(buffer);
}

/// Runs small all-reduces, each with different values and on another stream than the one before. Ranks with a GPU each
/// destroy a stream as soon as its calls are enqueued. Ranks that share a GPU alternate between two streams, because
/// streams of several ranks that share a hardware queue may deadlock. Some calls are followed by a graph launch and
/// another call on the same stream, so that the stream orders the three.
void check_many_streams(straitComm_t comm, int rank, int ranks) {
  constexpr std::size_t calls = 200, count = 300, numbers = calls + 1 + count;
  const bool destroys = gpu_count() >= ranks;
  DeviceSide last(4096);
  std::vector<cudaStream_t> streams(destroys ? calls : 2);
  for (cudaStream_t& stream : streams) STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::int32_t *input = nullptr, *output = nullptr;
  std::vector<std::int32_t> own(numbers), got((calls + 1) * count);
  for (std::size_t i = 0; i < numbers; ++i) own[i] = static_cast<std::int32_t>(i * 7) + rank;
  STRAIT_EXPECT_CUDA(cudaMalloc(&input, own.size() * 4));
  STRAIT_EXPECT_CUDA(cudaMalloc(&output, got.size() * 4));
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(input, own.data(), own.size() * 4, cudaMemcpyHostToDevice, last.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(last.stream()));  // the other streams do not wait for this copy
  const auto all_reduce = [&](std::size_t call, cudaStream_t stream) {
    STRAIT_EXPECT_OK(straitAllReduce(input + call, output + call * count, count, straitInt32, straitSum, comm, stream));
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(last.stream(), cudaStreamCaptureModeThreadLocal));
  all_reduce(calls, last.stream());
  STRAIT_EXPECT_CUDA(cudaStreamEndCapture(last.stream(), &graph));
  STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  meet_on_host();  // allocating may wait for kernels of ranks that share the GPU, and these for this rank
  for (std::size_t call = 0; call < calls; ++call) {
    cudaStream_t& stream = streams[call % streams.size()];
    all_reduce(call, stream);
    if (call % 16 == 7) {
      STRAIT_EXPECT_CUDA(cudaGraphLaunch(ready, stream));
      all_reduce(++call, stream);
    }
    if (destroys) STRAIT_EXPECT_CUDA(cudaStreamDestroy(std::exchange(stream, nullptr)));
  }
  // Waiting for the last call waits for all of them.
  STRAIT_EXPECT_OK(straitBarrier(comm, last.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(last.stream()));
  STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), output, got.size() * 4, cudaMemcpyDeviceToHost));
  std::size_t wrong = 0;
  for (std::size_t call = 0; call <= calls; ++call)
    for (std::size_t i = 0; i < count; ++i)
      wrong += got[call * count + i] != static_cast<std::int32_t>((call + i) * 7) * ranks + ranks * (ranks - 1) / 2;
  EXPECT_EQ(wrong, 0u);
  meet_on_host();
  for (const cudaStream_t stream : streams)
    if (stream != nullptr) cudaStreamDestroy(stream);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaFree(input);
  cudaFree(output);
}

constexpr auto no_sms_option = static_cast<std::uint32_t>(STRAIT_NO_SMS);

/// Buffers from cudaMallocAsync(), and of several allocations mapped at consecutive addresses, like PyTorch's
/// expandable segments.
void check_kinds_of_memory(straitComm_t comm, int rank, int ranks) {
  constexpr std::size_t count = 1'000'003, part_bytes = std::size_t{2} << 20;
  int device = 0;
  STRAIT_EXPECT_CUDA(cudaGetDevice(&device));
  DeviceSide side(4096);
  void* async = nullptr;
  STRAIT_EXPECT_CUDA(cudaMallocAsync(&async, count * 4, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  std::vector<cuda::Allocation> parts;
  for (std::size_t bytes = 0; bytes < count * 4; bytes += part_bytes) {
    auto part = cuda::Allocation::create(device, part_bytes, false);
    ASSERT_TRUE(part) << part.error().message;
    parts.push_back(std::move(*part));
  }
  auto segments = cuda::AddressRange::map(parts, std::vector(parts.size(), part_bytes), {&device, 1});
  ASSERT_TRUE(segments) << segments.error().message;
  meet_on_host();  // allocating may wait for kernels of ranks that share the GPU, and these for this rank
  std::vector<std::int32_t> numbers(count), got(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::int32_t>(i * 5) + rank;
  const cudaStream_t stream = side.stream();
  for (const auto& [from, to] : {std::pair<void*, void*>{async, segments->data()}, {segments->data(), async}}) {
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(from, numbers.data(), count * 4, cudaMemcpyHostToDevice, stream));
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(to, poison, count * 4, stream));
    STRAIT_EXPECT_OK(straitAllReduce(from, to, count, straitInt32, straitSum, comm, stream));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
    STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), to, count * 4, cudaMemcpyDeviceToHost));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += got[i] != static_cast<std::int32_t>(i * 5) * ranks + ranks * (ranks - 1) / 2;
    EXPECT_EQ(wrong, 0u) << (from == async ? "from cudaMallocAsync" : "from segments");
    meet_on_host();
  }
  STRAIT_EXPECT_CUDA(cudaFreeAsync(async, stream));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
}

/// Calls with their own limits of SMs between calls without, over the same lanes.
void check_bounds_of_calls(straitComm_t comm, int rank, int ranks) {
  DeviceSide side((std::size_t{8} << 20) * static_cast<std::size_t>(ranks));
  std::uint64_t seed = 3000;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
        Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
    for (const std::size_t count : {1001, 300'007, 1'500'000})
      for (const std::uint32_t max_sms : {1U, 0U, 5U, 0U, 20U, no_sms_option, 2U}) {
        CollectiveCase c;
        c.collective = collective;
        c.type = seed % 2 == 0 ? DataType::float32 : DataType::bfloat16;
        c.count = count;
        c.max_sms = max_sms;
        c.seed = ++seed;
        side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c,
                   seed % 4 < 2 ? Mode::eager : Mode::graph);
      }
}

/// Reduces every pair of 8-bit elements, which is everything that the GPU's conversions can be given. Ranks beyond the
/// first two repeat these two's inputs.
void check_pairs_of_bytes(straitComm_t comm, int rank, int ranks) {
  std::vector<Bytes> inputs(static_cast<std::size_t>(ranks), Bytes(1 << 16));
  for (std::size_t r = 0; r < inputs.size(); ++r)
    for (std::size_t i = 0; i < inputs[r].size(); ++i) inputs[r][i] = static_cast<std::byte>(r % 2 == 0 ? i : i >> 8);
  const Bytes& own = inputs[static_cast<std::size_t>(rank)];
  DeviceSide side(4096);
  std::byte *const input = DeviceSide::allocate(own.size(), false), *const output =
                                                                        DeviceSide::allocate(own.size(), false);
  Bytes got(own.size());
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(input, own.data(), own.size(), cudaMemcpyHostToDevice, side.stream()));
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(got.data(), input, got.size(), cudaMemcpyDeviceToHost, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  // Allocating, also for a first copy, may wait for kernels of ranks that share the GPU, and these for this rank.
  meet_on_host();
  for (const DataType type : {DataType::float8_e4m3, DataType::float8_e5m2, DataType::int8, DataType::uint8})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(output, poison, own.size(), side.stream()));
      STRAIT_EXPECT_OK(straitAllReduce(input, output, own.size(), static_cast<straitDataType_t>(type),
                                       static_cast<straitRedOp_t>(op), comm, side.stream()));
      STRAIT_EXPECT_CUDA(cudaMemcpyAsync(got.data(), output, got.size(), cudaMemcpyDeviceToHost, side.stream()));
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      const Bytes expected = reference_reduction({.type = type, .op = op, .inputs = inputs});
      EXPECT_EQ(first_difference(expected, got, type, inputs), "") << "operation " << static_cast<int>(op);
    }
  meet_on_host();
  DeviceSide::release(input, false);
  DeviceSide::release(output, false);
}

using DeviceCollectives = DeviceRanks;
TEST_P(DeviceCollectives, AllShapes) {
  run([](straitComm_t comm, int rank, int ranks) { check_shapes(comm, rank, ranks); });
}
TEST_P(DeviceCollectives, AllTypesAndOperations) {
  run([](straitComm_t comm, int rank, int ranks) { check_arithmetic(comm, rank, ranks); });
}
TEST_P(DeviceCollectives, PairsOfBytes) { run(check_pairs_of_bytes); }
/// Has an effect only where GPUs reach one another's memory.
TEST_P(DeviceCollectives, ArithmeticOfPipes) {
  setenv("STRAIT_PIPED_BYTES", "0", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    check_arithmetic(comm, rank, ranks);
    check_pairs_of_bytes(comm, rank, ranks);
  });
  unsetenv("STRAIT_PIPED_BYTES");
}
TEST_P(DeviceCollectives, Messages) { run(check_messages); }
TEST_P(DeviceCollectives, GroupsBesideOthers) { run(check_group_beside_others); }
TEST_P(DeviceCollectives, KindsOfMemory) { run(check_kinds_of_memory); }
TEST_P(DeviceCollectives, AllToAllV) { run(check_all_to_all_v); }
/// Most messages use lines over NVLink; with few blocks, the longer ones use bulk.
TEST_P(DeviceCollectives, MessagesOfFewBlocks) {
  setenv("STRAIT_MAX_SMS", "4", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    check_messages(comm, rank, ranks);
    check_all_to_all_v(comm, rank, ranks);
  });
  unsetenv("STRAIT_MAX_SMS");
}
/// By copy engines, where GPUs reach one another's memory.
TEST_P(DeviceCollectives, MessagesOfNoSms) {
  setenv("STRAIT_MAX_SMS", "none", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    check_messages(comm, rank, ranks);
    check_group_beside_others(comm, rank, ranks);
    check_all_to_all_v(comm, rank, ranks);
  });
  unsetenv("STRAIT_MAX_SMS");
}
TEST_P(DeviceCollectives, BoundsOfCalls) { run(check_bounds_of_calls); }
TEST_P(DeviceCollectives, Repeats) { run(check_repeats); }
TEST_P(DeviceCollectives, Order) { run(check_order); }
TEST_P(DeviceCollectives, ManyStreams) { run(check_many_streams); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{false, 3}, Setup{false, 4},
                                           Setup{true, 2}, Setup{true, 4}, Setup{false, 8}),
                         name_of);

}  // namespace
}  // namespace strait::testing
