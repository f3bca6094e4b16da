// The count by which a launch lets waiting streams continue (Ring::finished), by the kernels of src/kernels on the CPU.
// All tests of kernels check that each block counts once, even if it gives up (run_launches()).
#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/emulated_machine.hpp"
#include "support/random_data.hpp"
//
#include <gtest/gtest.h>
#include <atomic>
#include <chrono>
#include <thread>
#include <variant>
#include <vector>

namespace strait::testing {
namespace {

struct Kernel {
  const char* name;
  std::size_t flagged_bytes;
  const char* algorithm;
  Collective collective;
};
constexpr Kernel kernels_of_launches[] = {
    {"PacketsExchangeReduce", 1 << 20, "one_hop", Collective::all_reduce},
    {"PacketsExchangeCopy", 1 << 20, "one_hop", Collective::broadcast},
    {"PacketsTwoHopReduce", 1 << 20, "two_hop", Collective::all_reduce},
    {"PacketsTwoHopCopy", 1 << 20, "two_hop", Collective::broadcast},
    {"BulkExchangeReduce", 0, "one_hop", Collective::all_reduce},
    {"BulkExchangeCopy", 0, "one_hop", Collective::broadcast},
    {"BulkTwoHopReduce", 0, "two_hop", Collective::all_reduce},
    {"BulkTwoHopCopy", 0, "two_hop", Collective::broadcast},
};

constexpr std::uint32_t ranks = 3;
constexpr std::size_t count = 3000;

/// Calls of one collective, on ranks that are threads.
class Finished : public ::testing::TestWithParam<Kernel> {
 protected:
  static Machine::Options options() {
    return {.flagged_bytes = GetParam().flagged_bytes, .p2p = true, .algorithm = GetParam().algorithm};
  }
  Finished() : machine_(ranks, 2, options()) {
    c_.collective = GetParam().collective;
    c_.type = DataType::uint8;
    c_.count = count;
  }
  std::vector<DeviceLaunch> launches(std::uint32_t rank, Bytes& data) {
    return machine_.calls(rank).launches_of(call_of(c_, data.data(), data.data(), Bytes(8)));
  }
  void run(DeviceLaunch launch, std::uint32_t* finished) {
    std::visit([&](auto& argument) { argument.ring.finished = finished; }, launch.argument);
    std::vector<std::jthread> blocks;
    for (std::uint32_t index = 0; index < launch.blocks; ++index)
      blocks.emplace_back([&, index] { run_block(launch, index, c_.type, ++seed_); });
  }
  /// Returns a rank's input: every rank contributes `value`, except that in a broadcast only the root does.
  Bytes input(std::uint32_t rank, std::uint8_t value) const {
    const bool contributes = c_.collective != Collective::broadcast || rank == c_.root;
    return Bytes(count, static_cast<std::byte>(contributes ? value : 0));
  }
  Bytes output(std::uint8_t value) const {
    return Bytes(count, static_cast<std::byte>(c_.collective == Collective::broadcast ? value : ranks * value));
  }

  Machine machine_;
  CollectiveCase c_;
  std::atomic<std::uint32_t> seed_{1};
};
INSTANTIATE_TEST_SUITE_P(Kernels, Finished, ::testing::ValuesIn(kernels_of_launches),
                         [](const auto& test) { return std::string(test.param.name); });

/// Another stream continues when the count is reached, while threads of the earlier launch may still be running. By
/// then the launch's output must be complete, and so must the counters from which the next launch starts.
TEST_P(Finished, WhoSeesTheCountSeesWhatWasDone) {
  constexpr std::uint8_t calls = 40;
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<Bytes> data;
      for (std::uint8_t call = 1; call <= calls; ++call) data.push_back(input(rank, call));
      std::uint32_t finished = 0, blocks = 0;
      std::vector<std::jthread> running;
      for (std::uint8_t call = 1; call <= calls; ++call)
        for (const DeviceLaunch& launch : launches(rank, data[call - 1])) {
          running.emplace_back([&, launch] { run(launch, &finished); });
          blocks += launch.blocks;
          while (std::atomic_ref(finished).load(std::memory_order_acquire) != blocks) std::this_thread::yield();
          ASSERT_EQ(data[call - 1], output(call)) << "call " << int{call};
        }
    });
}

TEST_P(Finished, NothingIsCountedInGraphs) {
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Bytes data = input(rank, 1);
      for (const DeviceLaunch& launch : launches(rank, data)) run(launch, nullptr);
      EXPECT_EQ(data, output(1));
    });
}

/// If no peer calls, a launch gives up. It must be counted, or whatever waits for it would wait forever.
TEST_P(Finished, LaunchesThatGiveUpCount) {
  constexpr std::uint32_t rank = 1;  // not the root, so it waits
  Bytes data = input(rank, 1);
  std::uint32_t finished = 0, blocks = 0;
  for (int turn = 0; turn < 2; ++turn)  // the second launch gives up before it does anything
    for (DeviceLaunch launch : launches(rank, data)) {
      std::visit([&](auto& argument) { argument.ring.timeout_ns = 20'000'000; }, launch.argument);
      run(launch, &finished);
      blocks += launch.blocks;
      EXPECT_EQ(finished, blocks);
    }
  EXPECT_NE(machine_.mailbox(rank).event, kernels::Mailbox::Event::none);
}

/// A block gives up while threads of another one, which begins later, look whether any has: these must agree.
TEST_P(Finished, LaunchesCountIfBlocksGiveUpWhileOthersBegin) {
  constexpr std::uint32_t rank = 1;
  Bytes data = input(rank, 1);
  for (int turn = 0; turn < 40; ++turn) {
    Machine machine(ranks, 2, options());
    const auto all = machine.calls(rank).launches_of(call_of(c_, data.data(), data.data(), Bytes(8)));
    DeviceLaunch launch = all.front();
    std::uint32_t finished = 0, gave_up = 0;
    std::visit(
        [&](auto& argument) {
          argument.ring.timeout_ns = 1'000'000;
          argument.ring.gave_up = &gave_up;
        },
        launch.argument);
    {
      const std::jthread elsewhere([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(20 * turn));
        std::atomic_ref(gave_up).store(1);
      });
      run(launch, &finished);
    }
    EXPECT_EQ(finished, launch.blocks);
  }
}

}  // namespace
}  // namespace strait::testing
