// Collectives in groups between GPU ranks, where small calls share launches; compared bit by bit.
#include "gpu/device_checks.hpp"

#include <vector>

namespace strait::testing {
namespace {

constexpr std::size_t place_bytes = 64 << 10, most_calls = 48;

/// One rank's calls of a group, each with its own buffer space between guards.
class GroupOfCalls {
 public:
  GroupOfCalls(DeviceSide& side, straitComm_t comm, int rank, int ranks, std::uint64_t seed)
      : side_(side), comm_(comm), rank_(static_cast<std::uint32_t>(rank)), calls_(seed * 4) {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      calls_[i].c = random_case(seed, i, static_cast<std::uint32_t>(ranks));
      place(calls_[i], i * place_bytes, static_cast<std::uint32_t>(ranks));
    }
  }
  void prepare() {
    for (std::byte* buffer : {side_.send(), side_.receive()})
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(buffer, poison, side_.bytes(), side_.stream()));
    for (const One& one : calls_)
      STRAIT_EXPECT_CUDA(cudaMemcpyAsync(one.input, one.inputs[rank_].data(), one.inputs[rank_].size(),
                                         cudaMemcpyHostToDevice, side_.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side_.stream()));
    meet_on_host();  // device-wide operations may wait for kernels of ranks that share the GPU
  }
  void call() {
    STRAIT_EXPECT_OK(straitGroupStart());
    for (const One& one : calls_)
      STRAIT_EXPECT_OK(
          call_collective(one.c, one.input, one.output, static_cast<straitRedOp_t>(one.c.op), comm_, side_.stream()));
    STRAIT_EXPECT_OK(straitGroupEnd());
  }
  void verify(const char* mode) {
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side_.stream()));
    Bytes sent(side_.bytes()), received(side_.bytes());
    STRAIT_EXPECT_CUDA(cudaMemcpy(sent.data(), side_.send(), sent.size(), cudaMemcpyDeviceToHost));
    STRAIT_EXPECT_CUDA(cudaMemcpy(received.data(), side_.receive(), received.size(), cudaMemcpyDeviceToHost));
    for (const One& one : calls_) {
      const Bytes expected = expected_output(one.c, one.inputs, {}, rank_);
      std::byte* const result =
          one.c.in_place ? sent.data() + (one.output - side_.send()) : received.data() + (one.output - side_.receive());
      EXPECT_EQ(first_difference(expected, {result, expected.size()}, one.c.type, one.inputs), "")
          << describe(one.c) << " in a group of " << calls_.size() << ", " << mode << ", on rank " << rank_;
      std::fill_n(result, expected.size(), std::byte{poison});
      if (one.c.in_place) continue;
      std::byte* const input = sent.data() + (one.input - side_.send());
      EXPECT_TRUE(std::equal(one.inputs[rank_].begin(), one.inputs[rank_].end(), input)) << describe(one.c);
    }
    EXPECT_EQ(received, Bytes(side_.bytes(), std::byte{poison})) << "something was written beside outputs";
  }

 private:
  struct One {
    CollectiveCase c;
    std::vector<Bytes> inputs;
    std::byte *input = nullptr, *output = nullptr;
  };
  /// Returns a random case; runs of six consecutive ones are similar enough to share a launch.
  static CollectiveCase random_case(std::uint64_t seed, std::size_t i, std::uint32_t ranks) {
    const std::uint64_t bits = mix(seed * 1000 + i), run = mix(seed * 1000 + i / 6);
    constexpr Collective reductions[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce};
    constexpr Collective copies[] = {Collective::all_gather, Collective::all_to_all, Collective::broadcast,
                                     Collective::gather, Collective::scatter};
    CollectiveCase c;
    c.collective = run % 2 == 0 ? reductions[bits % 3] : copies[bits % 5];
    c.type = run / 2 % 2 == 0 ? DataType::bfloat16 : DataType::float32;
    c.op = static_cast<ReduceOp>(bits / 64 % static_cast<std::uint64_t>(ReduceOp::premul_sum));
    c.count = bits / 8 % (seed % 3 == 0 ? 1500 : 300);
    c.root = static_cast<std::uint32_t>(bits / 512) % ranks;
    c.in_place = bits % 5 == 0;
    c.misalignment_bytes = bits % 7 == 0 ? 4 : 0;
    c.seed = bits % 100'000;
    return c;
  }
  void place(One& one, std::size_t offset, std::uint32_t ranks) {
    const BufferBytes sizes = buffer_bytes(one.c, ranks);
    EXPECT_LE(std::max(sizes.send, sizes.receive) + 2 * guard_bytes, place_bytes);
    for (std::uint32_t r = 0; r < ranks; ++r) one.inputs.push_back(random_input(one.c, ranks, r));
    offset += guard_bytes + one.c.misalignment_bytes;
    const bool inside = one.c.in_place && sizes.receive > sizes.send;
    one.input = side_.send() + offset + (inside ? own_offset(one.c, rank_) : 0);
    one.output =
        one.c.in_place ? side_.send() + offset + (inside ? 0 : own_offset(one.c, rank_)) : side_.receive() + offset;
  }

  DeviceSide& side_;
  straitComm_t comm_;
  std::uint32_t rank_;
  std::vector<One> calls_;
};

/// Makes groups of calls, eagerly and in a graph that is launched twice.
void check_groups(straitComm_t comm, int rank, int ranks) {
  DeviceSide side(most_calls * place_bytes);
  for (std::uint64_t seed = 1; seed <= most_calls / 4; ++seed) {
    GroupOfCalls group(side, comm, rank, ranks, seed);
    group.prepare();
    group.call();
    group.verify("eagerly");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    STRAIT_EXPECT_CUDA(cudaStreamBeginCapture(side.stream(), cudaStreamCaptureModeThreadLocal));
    group.call();
    STRAIT_EXPECT_CUDA(cudaStreamEndCapture(side.stream(), &graph));
    STRAIT_EXPECT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
    meet_on_host();
    for (int replay = 0; replay < 2; ++replay) {
      group.prepare();
      STRAIT_EXPECT_CUDA(cudaGraphLaunch(ready, side.stream()));
      group.verify("in a graph");
      meet_on_host();
    }
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
  }
}

/// Calls of a group that need one another's results must run in order, as they would outside of a group; also if they
/// are on several streams.
void check_dependent_groups(straitComm_t comm, int rank, int ranks) {
  constexpr std::size_t count = 500, links = 10;
  DeviceSide first(4096), second(4096);
  std::int32_t* chain = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&chain, (links + 1) * count * 4));
  std::vector<std::int32_t> numbers((links + 1) * count, -1);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::int32_t>(i) + rank;
  const auto factor = static_cast<std::uint32_t>(ranks);
  for (const bool two_streams : {false, true}) {
    // Ordered by the stream: a plain copy from pageable memory may return before the data is on the device.
    STRAIT_EXPECT_CUDA(
        cudaMemcpyAsync(chain, numbers.data(), numbers.size() * 4, cudaMemcpyHostToDevice, first.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(first.stream()));
    meet_on_host();
    STRAIT_EXPECT_OK(straitGroupStart());
    for (std::size_t link = 0; link < links; ++link)
      STRAIT_EXPECT_OK(straitAllReduce(chain + link * count, chain + (link + 1) * count, count, straitInt32, straitSum,
                                       comm, (two_streams && link % 2 == 1 ? second : first).stream()));
    STRAIT_EXPECT_OK(straitGroupEnd());
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(first.stream()));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(second.stream()));
    std::vector<std::int32_t> got(numbers.size());
    STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), chain, got.size() * 4, cudaMemcpyDeviceToHost));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t expected = factor * static_cast<std::uint32_t>(i) + factor * (factor - 1) / 2;
      for (std::size_t link = 1; link <= links; ++link, expected *= factor)
        wrong += static_cast<std::uint32_t>(got[link * count + i]) != expected;
    }
    EXPECT_EQ(wrong, 0u) << (two_streams ? "on two streams" : "on one");
    meet_on_host();
  }
  cudaFree(chain);
}

using DeviceGroups = DeviceRanks;
TEST_P(DeviceGroups, HaveTheBitsOfTheirCalls) { run(check_groups); }
TEST_P(DeviceGroups, ThatNeedOneAnotherRunInOrder) { run(check_dependent_groups); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceGroups,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{false, 3}, Setup{false, 4},
                                           Setup{true, 2}, Setup{true, 4}),
                         name_of);

}  // namespace
}  // namespace strait::testing
