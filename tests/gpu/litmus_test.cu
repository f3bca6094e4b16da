// Whether the memory of real GPUs does what the kernels' protocols require of it (docs/proofs.md).
#include "gpu/litmus.cuh"

#include <chrono>
#include <cstdio>
#include <utility>

#include "gpu/litmus_memory.hpp"
#include "gpu/litmus_pipes.cuh"

namespace strait::testing {
namespace {

using kernels::Bulk;
using kernels::Lines;
using kernels::Packets;
using kernels::Protocol;

struct Shape {
  std::uint32_t lanes, threads, pieces, depth, stride, pause_cycles, rounds;
};
/// 1.1 million slot uses in all.
constexpr Shape passing_shapes[] = {{1, 32, 1, 1, 1, 0, 100'000},
                                    {4, 64, 4, 1, 3, 1000, 50'000},
                                    {16, 512, 16, 4, 5, 0, 25'000},
                                    {32, 128, 8, 2, 7, 4000, 10'000},
                                    {8, 256, 32, 4, 11, 20'000, 10'000}};
constexpr Shape watching_shapes[] = {
    {1, 32, 1, 1, 1, 0, 400'000}, {8, 128, 4, 1, 1, 500, 100'000}, {16, 512, 16, 1, 1, 0, 40'000}};
/// Reader and writer in step, with no other traffic: a control that must fail does so soon.
constexpr Shape control_shapes[] = {{4, 64, 4, 1, 1, 0, 2000}};
/// The same for longer, for controls that may well pass.
constexpr Shape long_control_shapes[] = {{4, 64, 4, 1, 3, 1000, 20'000}, {16, 512, 16, 4, 5, 0, 10'000}};

/// Shapes of at least two warps: 1.1 million slot uses in all.
constexpr Shape piped_shapes[] = {{1, 64, 1, 1, 1, 0, 100'000},
                                  {4, 64, 4, 1, 1, 1000, 50'000},
                                  {16, 512, 16, 4, 1, 0, 25'000},
                                  {32, 128, 8, 2, 1, 4000, 10'000},
                                  {8, 256, 32, 4, 1, 20'000, 10'000}};
constexpr Shape piped_long_control_shapes[] = {{4, 64, 4, 1, 1, 1000, 20'000}, {16, 512, 16, 4, 1, 0, 10'000}};

/// The sums over all shapes that ran.
struct Outcome {
  Tally tally{};
  unsigned long long uses = 0;
  double seconds = 0;
};

class Litmus : public ::testing::TestWithParam<Where> {
 protected:
  using Kernel = void (*)(Traffic);

  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
    const int needed = has_peers(GetParam()) ? 2 : 1;
    if (devices < needed) GTEST_SKIP() << "needs " << needed << " GPUs, here are " << devices;
    if (GetParam() == Where::peers && !(reaches(0, 1) && reaches(1, 0)))
      GTEST_SKIP() << "GPUs 0 and 1 cannot reach one another's memory";
    for (int gpu = 0; gpu < needed; ++gpu) {
      const bool through_host = is_host(GetParam());
      const int reader = (gpu + 1) % needed;
      ways_.push_back({gpu, reader, LitmusMemory(through_host ? -1 : reader, slots_bytes),
                       LitmusMemory(through_host ? -1 : reader, words_bytes),
                       LitmusMemory(through_host ? -1 : gpu, words_bytes)});
      tallies_.emplace_back(gpu, sizeof(Tally));
      constexpr std::size_t most_blocks = 4096;
      counts_.emplace_back(gpu, most_blocks * sizeof(kernels::LaneCounts));
      LITMUS_CUDA(cudaSetDevice(gpu));
      streams_.push_back(nullptr);
      LITMUS_CUDA(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking));
    }
  }
  void TearDown() override {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  /// Runs the kernel in each shape on all GPUs of the test at the same time. Stops after a shape in which a block got
  /// stuck.
  template <std::size_t shapes>
  Outcome run(Kernel kernel, Protocol protocol, const Shape (&all)[shapes], bool wipes = false,
              std::uint64_t timeout_ms = 5000) {
    Outcome outcome;
    const auto began = std::chrono::steady_clock::now();
    for (const Shape& shape : all) {
      if (HasFatalFailure() || outcome.tally.stuck != 0) break;
      run_shape(kernel, protocol, shape, {wipes, timeout_ms}, outcome);
    }
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return outcome;
  }

  /// Prints what was seen.
  void report(const std::string& what, const Outcome& outcome) {
    const Tally& t = outcome.tally;
    std::printf(
        "[  litmus  ] %-34s %9llu uses of slots, %11llu checked: %llu stale, %llu overwritten, %llu torn, %llu "
        "stuck; %.1f s, begun %.1f ms apart\n",
        what.c_str(), outcome.uses, t.checked, t.stale, t.overwritten, t.torn, t.stuck, outcome.seconds,
        static_cast<double>(t.apart_ns) / 1e6);
  }
  void expect_none(const std::string& what, const Outcome& outcome, bool counts_overwritten = true) {
    report(what, outcome);
    EXPECT_GE(outcome.uses, 1'000'000u);
    EXPECT_GT(outcome.tally.checked, 0u);
    EXPECT_EQ(outcome.tally.stale, 0u);
    if (counts_overwritten) EXPECT_EQ(outcome.tally.overwritten, 0u);
    EXPECT_EQ(outcome.tally.torn, 0u);
    EXPECT_EQ(outcome.tally.stuck, 0u);
  }
  void expect_some(const std::string& what, const Outcome& outcome) {
    report(what, outcome);
    EXPECT_GT(outcome.tally.stale + outcome.tally.overwritten + outcome.tally.torn, 0u)
        << "the test does not notice what is wrong on purpose";
  }
  bool lines_arrive_whole() const { return !is_host(GetParam()) && (!has_peers(GetParam()) || has_nvlink(0, 1)); }

 private:
  static constexpr std::size_t slots_bytes = std::size_t{4} << 20, words_bytes = 4096;
  struct Extras {
    bool wipes;
    std::uint64_t timeout_ms;
  };

  void run_shape(Kernel kernel, Protocol protocol, const Shape& shape, const Extras& extras, Outcome& outcome) {
    const LitmusMemory mailbox(-1, sizeof(kernels::Mailbox)), begun(-1, words_bytes);
    mailbox.clear();
    begun.clear();
    for (const LitmusWay& way : ways_)
      for (const LitmusMemory* memory : {&way.slots, &way.flags, &way.returned}) memory->clear();
    // Load the kernel now: loading at the first launch would wait for a kernel that waits for this one.
    std::uint32_t lanes = shape.lanes;
    for (std::size_t gpu = 0; gpu < ways_.size(); ++gpu) {
      cudaFuncAttributes attributes;
      cudaDeviceProp properties;
      int blocks = 0;
      LITMUS_CUDA(cudaSetDevice(static_cast<int>(gpu)));
      LITMUS_CUDA(cudaFuncGetAttributes(&attributes, kernel));
      LITMUS_CUDA(cudaGetDeviceProperties(&properties, static_cast<int>(gpu)));
      LITMUS_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(shape.threads), 0));
      lanes = std::min(lanes, static_cast<std::uint32_t>(blocks * properties.multiProcessorCount) / 2);
      tallies_[gpu].clear();
    }
    ASSERT_GT(lanes, 0u);
    for (std::size_t gpu = 0; gpu < ways_.size(); ++gpu) {
      Traffic traffic{};
      traffic.ring.mailbox = mailbox.as<kernels::Mailbox>();
      traffic.ring.timeout_ns = extras.timeout_ms * 1'000'000;
      traffic.ring.slow_ns = kernels::never_slow_ns;
      traffic.ring.slots[static_cast<std::size_t>(protocol)].slot_bytes = shape.pieces * kernels::piece_bytes;
      traffic.out = channel(ways_[gpu]);
      traffic.in = channel(ways_[(gpu + ways_.size() - 1) % ways_.size()]);
      traffic.ring.counts = counts_[gpu].as<kernels::LaneCounts>();  // receive() loads one for each block
      traffic.tally = tallies_[gpu].as<Tally>();
      traffic.begun = begun.as<std::uint64_t>();
      traffic.gpus = static_cast<std::uint32_t>(ways_.size());
      traffic.gpu = static_cast<std::uint32_t>(gpu);
      traffic.lanes = lanes;
      traffic.depth = shape.depth;
      traffic.pieces = shape.pieces;
      traffic.rounds = shape.rounds;
      traffic.stride = shape.stride;
      traffic.pause_cycles = shape.pause_cycles;
      traffic.seed = static_cast<std::uint32_t>(gpu + 1);
      traffic.wipes = extras.wipes;
      LITMUS_CUDA(cudaSetDevice(static_cast<int>(gpu)));
      kernel<<<2 * lanes, shape.threads, 0, streams_[gpu]>>>(traffic);
      LITMUS_CUDA(cudaGetLastError());
    }
    for (std::size_t gpu = 0; gpu < ways_.size(); ++gpu) {
      LITMUS_CUDA(cudaSetDevice(static_cast<int>(gpu)));
      LITMUS_CUDA(cudaStreamSynchronize(streams_[gpu]));
      Tally seen{};
      LITMUS_CUDA(cudaMemcpy(&seen, tallies_[gpu].as<Tally>(), sizeof seen, cudaMemcpyDeviceToHost));
      outcome.tally.checked += seen.checked;
      outcome.tally.stale += seen.stale;
      outcome.tally.overwritten += seen.overwritten;
      outcome.tally.torn += seen.torn;
      outcome.tally.stuck += seen.stuck;
      outcome.tally.apart_ns = std::max(outcome.tally.apart_ns, seen.apart_ns);
      outcome.uses += std::uint64_t{lanes} * shape.rounds;
    }
  }
  static Channel channel(const LitmusWay& way) {
    return {way.slots.as<std::byte>(), way.flags.as<std::uint64_t>(), way.returned.as<std::uint64_t>()};
  }

  std::vector<LitmusWay> ways_;
  std::vector<LitmusMemory> tallies_;
  std::vector<LitmusMemory> counts_;
  std::vector<cudaStream_t> streams_;
};

bool have_async_copies(int devices) {
  bool have = true;
  for (int device = 0; device < devices; ++device) {
    int major = 0;
    have =
        have && cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
  }
  return have;
}
#define SKIP_WITHOUT_PIPES()                                                    \
  if (is_host(GetParam()) || !have_async_copies(has_peers(GetParam()) ? 2 : 1)) \
  GTEST_SKIP() << "pipes are not used here: they are for the memory of GPUs from compute capability 9.0 on"
#define SKIP_WITHOUT_LINES() \
  if (!lines_arrive_whole()) \
  GTEST_SKIP() << "lines are not used here: no more than 8 bytes are sure to arrive whole over PCIe"

// A reader that sees the flag of a line sees its data, and has read it before the writer learns that it may overwrite
// it.
TEST_P(Litmus, Lines) {
  SKIP_WITHOUT_LINES();
  expect_none("lines", run(pass_messages<Lines, Weakness::none>, Protocol::lines, passing_shapes));
}
TEST_P(Litmus, LinesAreWholeAtAnyTime) {
  SKIP_WITHOUT_LINES();
  expect_none("lines, watched", run(watch_stores<Lines, Weakness::none>, Protocol::lines, watching_shapes), false);
}
TEST_P(Litmus, Packets) {
  expect_none("packets", run(pass_messages<Packets, Weakness::none>, Protocol::packets, passing_shapes));
}
TEST_P(Litmus, PacketsAreWholeAtAnyTime) {
  expect_none("packets, watched", run(watch_stores<Packets, Weakness::none>, Protocol::packets, watching_shapes),
              false);
}
// A slot that other threads of the block have zeroed before a barrier must hold what was written after it. If zeros
// arrived later than a packet, its reader would wait for ever.
TEST_P(Litmus, WipedPackets) {
  expect_none("packets in wiped slots",
              run(pass_messages<Packets, Weakness::none>, Protocol::packets, passing_shapes, true));
}
// The writer: data of many threads, a barrier, a fence by one thread, its flag. The reader: an acquire, a barrier,
// reads by many threads.
TEST_P(Litmus, Bulk) { expect_none("bulk", run(pass_messages<Bulk, Weakness::none>, Protocol::bulk, passing_shapes)); }

// The writer: asynchronous copies, a fence by another warp, its flag. The reader: an acquire, then asynchronous copies,
// which must see the writer's. Slots are given back by another warp without a fence: what has been read must not see
// the next use.
TEST_P(Litmus, Pipes) {
  SKIP_WITHOUT_PIPES();
  expect_none("pipes", run(pass_by_pipes<Weakness::none>, Protocol::bulk, piped_shapes));
}

// Wrong in a way that shows on any machine, which proves that the tests above would notice.
TEST_P(Litmus, ControlFlagFirst) {
  if (lines_arrive_whole()) {
    expect_some("lines, flag first (control)",
                run(pass_messages<Lines, Weakness::flag_first>, Protocol::lines, control_shapes));
    expect_some("lines, flag first, watched (control)",
                run(watch_stores<Lines, Weakness::flag_first>, Protocol::lines, control_shapes));
  }
  expect_some("packets, flag first (control)",
              run(pass_messages<Packets, Weakness::flag_first>, Protocol::packets, control_shapes));
  expect_some("packets, flag first, watched (control)",
              run(watch_stores<Packets, Weakness::flag_first>, Protocol::packets, control_shapes));
  expect_some("bulk, flag first (control)",
              run(pass_messages<Bulk, Weakness::flag_first>, Protocol::bulk, control_shapes));
}
TEST_P(Litmus, ControlReturnFirst) {
  expect_some("bulk, returned before read (control)",
              run(pass_messages<Bulk, Weakness::return_first>, Protocol::bulk, control_shapes));
}
TEST_P(Litmus, ControlsOfPipes) {
  SKIP_WITHOUT_PIPES();
  expect_some("pipes, flag first (control)", run(pass_by_pipes<Weakness::flag_first>, Protocol::bulk, control_shapes));
  expect_some("pipes, returned before read (control)",
              run(pass_by_pipes<Weakness::return_first>, Protocol::bulk, control_shapes));
  report("pipes without the fence (control)",
         run(pass_by_pipes<Weakness::no_fence>, Protocol::bulk, piped_long_control_shapes, false, 500));
  report("pipes without the acquire (control)",
         run(pass_by_pipes<Weakness::no_acquire>, Protocol::bulk, piped_long_control_shapes, false, 500));
}
// Protocols without something that they rely on: reports how often it shows on this machine. None is sure to fail.
TEST_P(Litmus, ControlsThatMayHold) {
  report("bulk without the fence (control)",
         run(pass_messages<Bulk, Weakness::no_fence>, Protocol::bulk, long_control_shapes, false, 500));
  report("bulk without the acquire (control)",
         run(pass_messages<Bulk, Weakness::no_acquire>, Protocol::bulk, long_control_shapes, false, 500));
  report("packets in two stores (control)",
         run(pass_messages<Packets, Weakness::split>, Protocol::packets, long_control_shapes, false, 500));
  report("packets in two stores, watched (control)",
         run(watch_stores<Packets, Weakness::split>, Protocol::packets, watching_shapes, false, 500));
  report("lines in two stores (control)",
         run(pass_messages<Lines, Weakness::split>, Protocol::lines, long_control_shapes, false, 500));
  report("lines in two stores, watched (control)",
         run(watch_stores<Lines, Weakness::split>, Protocol::lines, watching_shapes, false, 500));
  if (lines_arrive_whole()) return;
  report("lines where they are not used (control)",
         run(pass_messages<Lines, Weakness::none>, Protocol::lines, long_control_shapes, false, 500));
  report("the same, watched (control)",
         run(watch_stores<Lines, Weakness::none>, Protocol::lines, watching_shapes, false, 500));
}

INSTANTIATE_TEST_SUITE_P(Where, Litmus,
                         ::testing::Values(Where::peers, Where::peers_through_host, Where::one_gpu,
                                           Where::one_gpu_through_host),
                         name_of);

}  // namespace
}  // namespace strait::testing
