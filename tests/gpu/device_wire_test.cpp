// Wire formats between GPU ranks through the public interface, compared bit by bit.
#include <gmock/gmock.h>

#include <cstdlib>

#include "gpu/device_side.hpp"
#include "gpu/residual_check.hpp"
#include "support/random_data.hpp"
#include "support/wire_reference.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

constexpr WireFormat formats[] = {WireFormat::int8, WireFormat::fp8, WireFormat::int4};
constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float16};
constexpr Collective collectives[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                      Collective::all_to_all};

void check_case(DeviceSide& side, straitComm_t comm, int rank, int ranks, const CollectiveCase& c, Mode mode) {
  side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, mode);
}

void check_bits(straitComm_t comm, int rank, int ranks) {
  DeviceSide side((std::size_t{1} << 20) * static_cast<std::size_t>(ranks));
  std::uint64_t seed = 1;
  for (const WireFormat wire : formats)
    for (const DataType type : types)
      for (const Collective collective : collectives)
        for (const std::size_t count : {0u, 1u, 127u, 128u, 129u, 1000u, 9001u, 200'003u}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = type;
          c.count = count;
          c.wire = wire;
          c.in_place = seed / 2 % 2 == 0;
          c.misalignment_bytes = std::array<std::size_t, 4>{0, size_bytes(type), 0, 1}[seed % 4];
          if (is_reduction(collective))
            c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[seed / 3 % 3];
          c.seed = ++seed;
          check_case(side, comm, rank, ranks, c, seed % 5 == 0 ? Mode::graph : Mode::eager);
        }
}

/// Calls that need more scratch memory than there is, and so run in several turns.
void check_turns(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{64} << 20);
  CollectiveCase c;
  c.type = DataType::bfloat16;
  c.wire = WireFormat::int8;
  c.count = 26'000'003;  // a turn of an all-reduce has up to 24 million elements
  c.in_place = true;
  check_case(side, comm, rank, ranks, c, Mode::eager);
  c.collective = Collective::all_to_all;
  c.count = 26'000'003 / static_cast<std::size_t>(ranks);
  check_case(side, comm, rank, ranks, c, Mode::graph);
}

/// Calls with and without a format, of sizes on both sides of the limits between algorithms, and as graphs. Where CPU
/// threads add up some of them, these follow calls that kernels add up.
void check_turn_about(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{8} << 20);
  constexpr WireFormat wires[] = {WireFormat::off, WireFormat::int8, WireFormat::fp8, WireFormat::int4};
  constexpr std::size_t counts[] = {1'000'003, 700, 40'000, 130'001, 9001};
  for (std::uint64_t i = 0; i < 60; ++i) {
    CollectiveCase c;
    c.type = types[i % std::size(types)];
    c.wire = wires[i % std::size(wires)];
    c.op = i % 7 < 4 ? ReduceOp::sum : ReduceOp::avg;
    c.count = counts[i % std::size(counts)];
    c.in_place = i % 2 == 0;
    c.seed = i + 1;
    check_case(side, comm, rank, ranks, c, i % 9 == 8 ? Mode::graph : Mode::eager);
  }
}

/// The communicator sets the format: calls do not name it, the first call is captured, and calls that cannot have a
/// format stay exact.
void check_configured(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  const std::size_t count = 10'001;
  CollectiveCase c;
  c.count = count;
  c.wire = WireFormat::int8;  // the communicator's; the options of the call name it, too
  check_case(side, comm, rank, ranks, c, Mode::graph);
  c.wire = WireFormat::off;
  c.op = ReduceOp::max;
  check_case(side, comm, rank, ranks, c, Mode::eager);
  c.op = ReduceOp::sum;
  c.type = DataType::int32;
  check_case(side, comm, rank, ranks, c, Mode::graph);

  std::vector<std::vector<float>> inputs(static_cast<std::size_t>(ranks), std::vector<float>(count));
  for (std::size_t r = 0; r < inputs.size(); ++r)
    for (std::size_t i = 0; i < count; ++i)
      inputs[r][i] = static_cast<float>(static_cast<std::int32_t>(mix(i + 1'000'000 * r))) * 0x1p-24F;
  float* data = nullptr;
  meet_on_host();  // allocating, like freeing, may wait for kernels of ranks that share the GPU
  STRAIT_EXPECT_CUDA(cudaMalloc(&data, count * sizeof(float)));
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(data, inputs[static_cast<std::size_t>(rank)].data(), count * sizeof(float),
                                     cudaMemcpyHostToDevice, side.stream()));
  meet_on_host();
  STRAIT_EXPECT_OK(straitAllReduce(data, data, count, straitFloat32, straitSum, comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  std::vector<float> result(count);
  STRAIT_EXPECT_CUDA(cudaMemcpy(result.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
  if (ranks > 1) {
    EXPECT_EQ(result, through_wire(WireFormat::int8, wire_sum(WireFormat::int8, ReduceOp::sum, inputs)));
  } else {
    EXPECT_EQ(result, inputs[0]);
  }
  meet_on_host();
  cudaFree(data);
}

/// The default stream cannot be used during a capture, either.
void check_default_stream_beside_capture(straitComm_t comm, const CollectiveCase& c) {
  cudaStream_t blocking = nullptr;
  cudaGraph_t graph = nullptr;
  float unused = 0;
  meet_on_host();
  STRAIT_EXPECT_CUDA(cudaStreamCreate(&blocking));
  STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(call_with_options(c, &unused, &unused, straitSum, comm, nullptr), straitInvalidUsage);
  EXPECT_THAT(straitGetLastError(comm), HasSubstr("the default stream cannot be used"));
  STRAIT_EXPECT_CUDA(cudaStreamEndCapture(blocking, &graph));
  STRAIT_EXPECT_CUDA(cudaGraphDestroy(graph));
  STRAIT_EXPECT_CUDA(cudaStreamDestroy(blocking));
  meet_on_host();
}

/// Memory for a format cannot be allocated during a capture. The call must be refused without side effects.
void check_capture_first(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{1} << 20);
  CollectiveCase c;
  c.count = 1000;
  c.wire = WireFormat::fp8;
  if (ranks > 1) {
    cudaGraph_t graph = nullptr;
    STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeThreadLocal));
    float unused = 0;
    EXPECT_EQ(call_with_options(c, &unused, &unused, straitSum, comm, side.stream()), straitInvalidUsage);
    EXPECT_THAT(straitGetLastError(comm), HasSubstr("STRAIT_WIRE"));
    STRAIT_EXPECT_CUDA(cudaStreamEndCapture(side.stream(), &graph));
    cudaGraphDestroy(graph);
    check_default_stream_beside_capture(comm, c);
  }
  check_case(side, comm, rank, ranks, c, Mode::eager);
  check_case(side, comm, rank, ranks, c, Mode::graph);
}

/// Calls in different formats send equally many bytes: a rank must not decode another format's bytes.
void check_mismatch(straitComm_t comm, int rank, int ranks) {
  if (ranks == 1) return;
  const DeviceSide side(0);
  float* data = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&data, 4000));
  STRAIT_EXPECT_CUDA(cudaMemsetAsync(data, 0, 4000, side.stream()));
  meet_on_host();
  CollectiveCase c;
  c.count = 1000;
  c.wire = rank == 0 ? WireFormat::int8 : WireFormat::fp8;
  straitResult_t result =
      call_with_options(c, data, data, straitSum, comm, side.stream());  // returns the error to a rank that is late
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (result == straitSuccess && std::chrono::steady_clock::now() < deadline)
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &result));
  EXPECT_EQ(result, straitMismatch);
  EXPECT_THAT(straitGetLastError(comm), ::testing::AllOf(HasSubstr("int8 on the wire"), HasSubstr("fp8 on the wire")));
  meet_on_host();
  cudaFree(data);
}

using DeviceWire = DeviceRanks;
TEST_P(DeviceWire, Bits) { run(check_bits, straitWireFp8); }
TEST_P(DeviceWire, BitsOfManyTurns) { run(check_turns, straitWireInt8); }
TEST_P(DeviceWire, BitsOfCallsTurnAbout) { run(check_turn_about); }
TEST_P(DeviceWire, IsOfTheCommunicator) {
  setenv("STRAIT_WIRE_BYTES", "16K", 1);  // the default is the size from which on the format pays
  run(check_configured, straitWireInt8);
  unsetenv("STRAIT_WIRE_BYTES");
}
TEST_P(DeviceWire, CapturesNeedMemoryFirst) { run(check_capture_first); }
TEST_P(DeviceWire, LeavesWhatWasLost) {
  run([](straitComm_t comm, int rank, int ranks) { check_residual(comm, rank, ranks, 9001); }, straitWireInt4);
}
TEST_P(DeviceWire, FormatsThatDifferAreShownToAll) { run(check_mismatch, straitWireInt8); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceWire,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{false, 3}, Setup{false, 4},
                                           Setup{true, 2}, Setup{true, 4}),
                         name_of);

}  // namespace
}  // namespace strait::testing
