// Every collective, type, operation and shape of buffer between GPU ranks, through the public interface, bit by bit.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>

#include "host/collective_case.hpp"
#include "support/random_data.hpp"
#include "support/ranks.hpp"
#include "support/reference.hpp"

namespace strait::testing {
namespace {

#define STRAIT_EXPECT_CUDA(call)                                                             \
  do {                                                                                       \
    const cudaError_t cuda_result = (call);                                                  \
    EXPECT_EQ(cuda_result, cudaSuccess) << #call << ": " << cudaGetErrorString(cuda_result); \
  } while (false)

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter};
constexpr std::size_t guard_bytes = 256;
constexpr unsigned char poison = 0xa5;

/// How a case is called: on the stream, or recorded into a graph that is then launched twice.
enum class Mode { eager, graph };

/// One rank's device, stream and buffers, used again from case to case.
class DeviceSide {
 public:
  explicit DeviceSide(std::size_t buffer_bytes) : bytes_(buffer_bytes + 2 * guard_bytes) {
    STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    STRAIT_EXPECT_CUDA(cudaMalloc(&send_, bytes_));
    STRAIT_EXPECT_CUDA(cudaMalloc(&receive_, bytes_));
  }
  ~DeviceSide() {
    cudaFree(send_);
    cudaFree(receive_);
    cudaStreamDestroy(stream_);
  }
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  void check(straitComm_t comm, std::uint32_t rank, std::uint32_t ranks, const CollectiveCase& c, Mode mode) {
    const BufferBytes sizes = buffer_bytes(c, ranks);
    std::vector<Bytes> inputs(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r)
      inputs[r] = random_elements(c.type, sizes.send / size_bytes(c.type), c.seed * 1000 + r);
    std::vector<Bytes> scalars(ranks);  // another on every rank
    for (std::uint32_t r = 0; r < ranks; ++r) scalars[r] = random_elements(c.type, 1, c.seed * 1000 + 500 + r);
    auto op = static_cast<straitRedOp_t>(c.op);
    if (c.op == ReduceOp::premul_sum)
      STRAIT_EXPECT_OK(
          straitRedOpCreatePreMulSum(&op, scalars[rank].data(), static_cast<straitDataType_t>(c.type), comm));
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
          cudaMemcpyAsync(input, inputs[rank].data(), inputs[rank].size(), cudaMemcpyHostToDevice, stream_));
    };
    if (mode == Mode::eager) {
      prepare();
      STRAIT_EXPECT_OK(call_collective(c, input, output, op, comm, stream_));
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
    } else {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t ready = nullptr;
      STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      STRAIT_EXPECT_OK(call_collective(c, input, output, op, comm, stream_));
      STRAIT_EXPECT_CUDA(cudaStreamEndCapture(stream_, &graph));
      STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
      for (int replay = 0; replay < 2; ++replay) {
        prepare();
        STRAIT_EXPECT_CUDA(cudaGraphLaunch(ready, stream_));
        STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
      }
      cudaGraphExecDestroy(ready);
      cudaGraphDestroy(graph);
    }
    const Bytes expected = reference_output({.collective = c.collective,
                                             .type = c.type,
                                             .op = c.op,
                                             .root = c.root,
                                             .premul_scalars = scalars,
                                             .inputs = inputs},
                                            rank);
    expect_contents(c, rank, ranks, inputs, output - (c.in_place ? send_ : receive_), expected);
    if (c.op == ReduceOp::premul_sum) STRAIT_EXPECT_OK(straitRedOpDestroy(op, comm));
  }

  cudaStream_t stream() const { return stream_; }

 private:
  /// The result is the reference's, the input is as it was, and nothing else was written.
  void expect_contents(const CollectiveCase& c, std::uint32_t rank, std::uint32_t ranks,
                       const std::vector<Bytes>& inputs, std::ptrdiff_t output_offset, const Bytes& expected) {
    Bytes send(bytes_), receive(bytes_);
    STRAIT_EXPECT_CUDA(cudaMemcpy(send.data(), send_, bytes_, cudaMemcpyDeviceToHost));
    STRAIT_EXPECT_CUDA(cudaMemcpy(receive.data(), receive_, bytes_, cudaMemcpyDeviceToHost));
    Bytes& with_output = c.in_place ? send : receive;
    const std::span<std::byte> got(with_output.data() + output_offset, expected.size());
    EXPECT_EQ(first_difference(expected, got, c.type, inputs), "")
        << describe(c) << " on rank " << rank << " of " << ranks;
    std::fill(got.begin(), got.end(), std::byte{poison});
    if (!c.in_place) {
      const auto input = send.begin() + static_cast<std::ptrdiff_t>(guard_bytes + c.misalignment_bytes);
      EXPECT_TRUE(std::equal(inputs[rank].begin(), inputs[rank].end(), input)) << describe(c) << " changed its input";
      std::fill_n(input, inputs[rank].size(), std::byte{poison});
      EXPECT_EQ(send, Bytes(bytes_, std::byte{poison})) << describe(c) << " wrote beside its input";
    }
    if (!c.in_place) {
      EXPECT_EQ(receive, Bytes(bytes_, std::byte{poison})) << describe(c) << " wrote beside its output, rank " << rank;
    }
  }

  std::size_t bytes_;
  cudaStream_t stream_ = nullptr;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
};

int gpu_count() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return 0;
  return devices;
}

/// Ranks that are threads share GPUs where there are fewer, with so few blocks each that all run at the same time.
void join_on_device(const straitUniqueId& id, int rank, int ranks, const RankBody& body) {
  const int gpus = gpu_count();
  straitConfig_t config = test_config();
  config.device = rank % gpus;
  if (gpus < ranks) config.max_sms = 8;
  STRAIT_EXPECT_CUDA(cudaSetDevice(config.device));
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
  if (comm == nullptr) return;
  body(comm, rank, ranks);
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

void run_on_devices(bool as_processes, int ranks, const RankBody& body) {
  if (as_processes) {
    LateId id;
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank)
      children.push_back(fork_rank([&] { join_on_device(id.await(), rank, ranks, body); }));
    id.make();
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)], 200000), 0) << "rank " << rank;
    return;
  }
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { join_on_device(id, rank, ranks, body); });
}

void check_shapes(straitComm_t comm, int rank, int ranks) {
  DeviceSide side((std::size_t{16} << 20) * static_cast<std::size_t>(ranks));
  std::uint64_t seed = 1;
  for (Collective collective : collectives)
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1000}, std::size_t{40961},
                              std::size_t{500'009}, std::size_t{3'000'001}})
      for (bool in_place : {false, true}) {
        CollectiveCase c;
        c.collective = collective;
        c.type = seed % 2 == 0 ? DataType::float32 : DataType::bfloat16;
        c.count = count;
        c.in_place = in_place;
        c.seed = ++seed;
        c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
        c.misalignment_bytes = seed % 3 == 0 ? 4 : 0;
        side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c,
                   seed % 4 < 2 ? Mode::eager : Mode::graph);
      }
}

void check_arithmetic(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(std::size_t{16} << 20);
  std::uint64_t seed = 1000;
  for (Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    for (int type = 0; type < data_type_count; ++type)
      for (int op = 0; op < reduce_op_count; ++op)
        for (std::size_t bytes : {std::size_t{1003}, std::size_t{700'000}}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = static_cast<DataType>(type);
          c.op = static_cast<ReduceOp>(op);
          c.count = bytes / size_bytes(c.type) + 3;
          c.seed = ++seed;
          c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
          c.in_place = seed % 2 == 0;
          c.misalignment_bytes = seed % 5 == 0 ? 1 : 0;
          side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
        }
}

/// Rings of messages, some to itself, several a pair, of different lengths.
void check_messages(straitComm_t comm, int rank, int ranks) {
  constexpr std::size_t slot_bytes = std::size_t{8} << 20;
  DeviceSide side(slot_bytes);
  std::byte *send = nullptr, *receive = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&send, slot_bytes * static_cast<std::size_t>(ranks)));
  STRAIT_EXPECT_CUDA(cudaMalloc(&receive, slot_bytes * static_cast<std::size_t>(ranks)));
  const auto bytes_between = [](int from, int to, int turn) {
    return static_cast<std::size_t>(mix(static_cast<std::uint64_t>(from * 100 + to * 10 + turn)) % (slot_bytes / 4));
  };
  for (int turn = 0; turn < 4; ++turn) {
    STRAIT_EXPECT_CUDA(cudaMemset(receive, poison, slot_bytes * static_cast<std::size_t>(ranks)));
    STRAIT_EXPECT_OK(straitGroupStart());
    for (int peer = 0; peer < ranks; ++peer) {
      const std::size_t out = bytes_between(rank, peer, turn), in = bytes_between(peer, rank, turn);
      const Bytes data = random_elements(DataType::uint8, out, static_cast<std::uint64_t>(rank * 16 + peer + turn));
      std::byte* const from = send + static_cast<std::size_t>(peer) * slot_bytes;
      std::byte* const to = receive + static_cast<std::size_t>(peer) * slot_bytes;
      STRAIT_EXPECT_CUDA(cudaMemcpy(from, data.data(), out, cudaMemcpyHostToDevice));
      // In two messages each, the second from where the first ends.
      STRAIT_EXPECT_OK(straitSend(from, out / 3, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitSend(from + out / 3, out - out / 3, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitRecv(to, in / 3, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitRecv(to + in / 3, in - in / 3, straitUint8, peer, comm, side.stream()));
    }
    STRAIT_EXPECT_OK(straitGroupEnd());
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    for (int peer = 0; peer < ranks; ++peer) {
      const Bytes expected = random_elements(DataType::uint8, bytes_between(peer, rank, turn),
                                             static_cast<std::uint64_t>(peer * 16 + rank + turn));
      Bytes got(expected.size());
      STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), receive + static_cast<std::size_t>(peer) * slot_bytes, got.size(),
                                    cudaMemcpyDeviceToHost));
      EXPECT_EQ(first_difference(expected, got, DataType::uint8), "") << "from " << peer << " to " << rank;
    }
  }
  // One way only, without a group; ranks that have no part do nothing.
  if (rank == 0 && ranks > 1) STRAIT_EXPECT_OK(straitSend(send, 1000, straitFloat32, ranks - 1, comm, side.stream()));
  if (rank == ranks - 1 && ranks > 1)
    STRAIT_EXPECT_OK(straitRecv(receive, 1000, straitFloat32, 0, comm, side.stream()));
  STRAIT_EXPECT_OK(straitBarrier(comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  cudaFree(send);
  cudaFree(receive);
}

/// Small all-reduces back to back, each with its own numbers: a line taken from the wrong use would show.
void check_repeats(straitComm_t comm, int rank, int ranks) {
  constexpr int calls = 20'000, count = 96;
  DeviceSide side(1 << 20);
  std::int32_t *input = nullptr, *output = nullptr;
  std::vector<std::int32_t> numbers(std::size_t{calls} + count);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::int32_t>(i * 7 + static_cast<std::size_t>(rank));
  STRAIT_EXPECT_CUDA(cudaMalloc(&input, numbers.size() * 4));
  STRAIT_EXPECT_CUDA(cudaMalloc(&output, std::size_t{calls} * count * 4));
  STRAIT_EXPECT_CUDA(cudaMemcpy(input, numbers.data(), numbers.size() * 4, cudaMemcpyHostToDevice));
  for (int call = 0; call < calls; ++call)
    STRAIT_EXPECT_OK(straitAllReduce(input + call, output + std::size_t{count} * static_cast<std::size_t>(call), count,
                                     straitInt32, straitSum, comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  std::vector<std::int32_t> got(std::size_t{calls} * count);
  STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), output, got.size() * 4, cudaMemcpyDeviceToHost));
  std::size_t wrong = 0;
  for (std::size_t call = 0; call < calls; ++call)
    for (std::size_t i = 0; i < count; ++i)
      wrong += got[call * count + i] != static_cast<std::int32_t>((call + i) * 7) * ranks + ranks * (ranks - 1) / 2;
  EXPECT_EQ(wrong, 0u);
  cudaFree(input);
  cudaFree(output);
}

struct Setup {
  bool as_processes;
  int ranks;
};
class DeviceCollectives : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    // A process that has used CUDA must not fork ranks that will: the count is asked in a child.
    int status = wait_for(fork_rank([] { _exit(gpu_count()); }), 60000);
    const int gpus = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    const int needed = GetParam().as_processes ? GetParam().ranks : 1;
    if (gpus < needed) GTEST_SKIP() << "needs " << needed << " GPUs, here are " << gpus;
  }
  void run(const RankBody& body) {
    if (GetParam().as_processes) return run_on_devices(true, GetParam().ranks, body);
    // In a child too, so that later tests may fork.
    EXPECT_EQ(wait_for(fork_rank([&] { run_on_devices(false, GetParam().ranks, body); }), 200000), 0);
  }
};
TEST_P(DeviceCollectives, AllShapes) { run(check_shapes); }
TEST_P(DeviceCollectives, AllTypesAndOperations) { run(check_arithmetic); }
TEST_P(DeviceCollectives, Messages) { run(check_messages); }
TEST_P(DeviceCollectives, Repeats) { run(check_repeats); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{false, 3}, Setup{false, 4},
                                           Setup{true, 2}, Setup{true, 4}, Setup{false, 8}),
                         [](const auto& test) {
                           return std::string(test.param.as_processes ? "Processes" : "Threads") +
                                  std::to_string(test.param.ranks);
                         });

}  // namespace
}  // namespace strait::testing
