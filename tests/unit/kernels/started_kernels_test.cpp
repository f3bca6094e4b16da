// What launches tell the host: which calls have started, and whether everything begun has ended. By the kernels of
// src/kernels on the CPU.
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
  bool piped = false;
};
constexpr Kernel kernels_of_launches[] = {
    {"PacketsExchangeReduce", 1 << 20, "one_hop", Collective::all_reduce},
    {"PacketsTwoHopReduce", 1 << 20, "two_hop", Collective::all_reduce},
    {"BulkExchangeCopy", 0, "one_hop", Collective::all_gather},
    {"BulkTwoHopReduce", 0, "two_hop", Collective::all_reduce},
    {"PipedExchangeCopy", 0, "one_hop", Collective::all_gather, true},
};

constexpr std::uint32_t ranks = 3, hash = 0xabcd0000;
constexpr std::size_t count = 1600;

class Started : public ::testing::TestWithParam<Kernel> {
 protected:
  Started()
      : machine_(ranks, 2,
                 {.flagged_bytes = GetParam().flagged_bytes,
                  .p2p = true,
                  .algorithm = GetParam().algorithm,
                  .piped = GetParam().piped}) {
    c_.collective = GetParam().collective;
    c_.type = DataType::float32;
    c_.count = count;
  }
  /// Returns a call's launches as a rank makes them: the first one marks the call as started, unless `call` is 0.
  std::vector<DeviceLaunch> launches(std::uint32_t rank, std::uint32_t call) {
    const Bytes& data = data_[rank];
    auto launches = machine_.calls(rank).launches_of(
        call_of(c_, data.data() + rank * count * 4, const_cast<std::byte*>(data.data()), Bytes(8)));
    for (DeviceLaunch& launch : launches) mark(launch, std::exchange(call, 0));
    return launches;
  }
  static void mark(DeviceLaunch& launch, std::uint32_t call, bool is_message = false) {
    std::visit(
        [&](auto& argument) {
          argument.ring.call = call;
          argument.ring.is_message = is_message;
        },
        launch.argument);
  }
  /// Runs a launch. `in_graph`: its end is not counted, as in a graph.
  void run(std::uint32_t rank, DeviceLaunch launch, bool in_graph) {
    std::uint32_t* const finished = in_graph ? nullptr : &machine_.launch_counts(rank).finished;
    std::visit([&](auto& argument) { argument.ring.finished = finished; }, launch.argument);
    std::vector<std::jthread> blocks;
    for (std::uint32_t index = 0; index < launch.blocks; ++index)
      blocks.emplace_back([&, index] { run_block(launch, index, c_.type, ++seed_); });
  }
  std::uint64_t marked(std::uint32_t rank, std::uint64_t number) {
    return std::atomic_ref(machine_.launch_counts(rank).started.calls[number % kernels::kept_marks]).load();
  }
  /// Returns the launch counts while kernels may be running.
  kernels::LaunchCounts launch_counts(std::uint32_t rank) {
    kernels::LaunchCounts& there = machine_.launch_counts(rank);
    kernels::LaunchCounts counts{};
    counts.collectives = std::atomic_ref(there.collectives).load();
    counts.begun = std::atomic_ref(there.begun).load();
    counts.finished = std::atomic_ref(there.finished).load();
    return counts;
  }
  template <class Body>
  void on_all_ranks(Body&& body) {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  }

  Machine machine_;
  CollectiveCase c_;
  std::vector<Bytes> data_{ranks, Bytes(ranks* count * 4)};
  std::atomic<std::uint32_t> seed_{1};
};
INSTANTIATE_TEST_SUITE_P(Kernels, Started, ::testing::ValuesIn(kernels_of_launches),
                         [](const auto& test) { return std::string(test.param.name); });

/// The same launches repeatedly, as a graph makes them, and other launches between.
TEST_P(Started, ReplaysAdvance) {
  on_all_ranks([&](std::uint32_t rank) {
    const auto captured = launches(rank, hash + 1), eager = launches(rank, hash + 2);
    for (std::uint32_t number = 1; number <= 9; ++number) {
      const bool in_graph = number % 3 != 0;
      EXPECT_EQ(marked(rank, number), 0u);
      const std::uint32_t begun = launch_counts(rank).begun;
      for (const DeviceLaunch& launch : in_graph ? captured : eager) run(rank, launch, in_graph);
      EXPECT_EQ(marked(rank, number), std::uint64_t{number} << 32 | (in_graph ? hash + 1 : hash + 2));
      EXPECT_EQ(launch_counts(rank).collectives, number);
      EXPECT_TRUE(launch_counts(rank).have_ended());
      EXPECT_EQ(launch_counts(rank).begun == begun, in_graph);
    }
  });
}

/// The places of marks are reused, and the count continues beyond 32 bits.
TEST_P(Started, PlacesAreUsedAgain) {
  on_all_ranks([&](std::uint32_t rank) {
    machine_.launch_counts(rank).collectives = 0xffffffff;
    const auto all = launches(rank, hash);
    for (std::uint32_t number = 0; number < 2; ++number) {
      machine_.launch_counts(rank).started.calls[number] = 77;
      for (const DeviceLaunch& launch : all) run(rank, launch, true);
      EXPECT_EQ(marked(rank, number), std::uint64_t{number} << 32 | hash);
    }
  });
}

TEST_P(Started, OfACallTheFirstLaunchAloneMarks) {
  on_all_ranks([&](std::uint32_t rank) {
    for (const std::uint32_t call : {hash, 0u, 0u, hash + 1})
      for (const DeviceLaunch& launch : launches(rank, call)) run(rank, launch, true);
    EXPECT_EQ(marked(rank, 1), std::uint64_t{1} << 32 | hash);
    EXPECT_EQ(marked(rank, 2), std::uint64_t{2} << 32 | (hash + 1));
    EXPECT_EQ(launch_counts(rank).collectives, 2u);
    EXPECT_TRUE(launch_counts(rank).have_ended());
  });
}

/// Messages are not counted, because not all ranks take part in them.
TEST_P(Started, MessagesHaveNoNumberOfTheirOwn) {
  on_all_ranks([&](std::uint32_t rank) {
    for (const DeviceLaunch& launch : launches(rank, hash)) run(rank, launch, true);
    for (DeviceLaunch launch : launches(rank, 0)) {
      mark(launch, hash + 5, true);
      run(rank, launch, false);
    }
    EXPECT_EQ(machine_.launch_counts(rank).started.messages, std::uint64_t{1} << 32 | (hash + 5));
    EXPECT_EQ(launch_counts(rank).collectives, 1u);
    EXPECT_EQ(marked(rank, 2), 0u);
  });
}

/// No peer calls: the call has started and does not end until it gives up.
TEST_P(Started, WhatWaitsHasNotEnded) {
  for (const bool in_graph : {false, true}) {
    constexpr std::uint32_t rank = 1;
    std::jthread launcher([&] {
      for (DeviceLaunch launch : launches(rank, hash)) {
        std::visit([&](auto& argument) { argument.ring.timeout_ns = 3'000'000'000; }, launch.argument);
        run(rank, launch, in_graph);
      }
    });
    const std::uint32_t number = in_graph ? 2 : 1;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (marked(rank, number) == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(marked(rank, number), std::uint64_t{number} << 32 | hash);
    if (!in_graph) {
      EXPECT_FALSE(launch_counts(rank).have_ended());  // what follows a launch that gave up ends at once
      // The host is told by the first block, which need not be the first that waits.
      const auto told = [&] { return std::atomic_ref(machine_.mailbox(rank).started.calls[number]).load(); };
      while (told() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      EXPECT_EQ(told(), marked(rank, number));
      const std::atomic_ref waits(machine_.mailbox(rank).waits);
      const auto is_for_a_peer = [&] { return waits != 0 && waits <= ranks && waits != rank + 1; };
      while (!is_for_a_peer() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      EXPECT_TRUE(is_for_a_peer()) << waits;
    }
    launcher.join();
    EXPECT_TRUE(launch_counts(rank).have_ended());
  }
}

/// After a launch that gave up, later ones end at once, even behind a launch that had nothing to do.
TEST_P(Started, ALaunchOfNothingForgivesNothing) {
  if (kernels_of_launches[0].name != std::string_view(GetParam().name)) return;  // empty launches use its protocol
  constexpr std::uint32_t rank = 1;
  const auto give_up_after = [](DeviceLaunch launch, std::uint64_t ns) {
    std::visit([&](auto& argument) { argument.ring.timeout_ns = ns; }, launch.argument);
    return launch;
  };
  const DeviceLaunch call = launches(rank, hash).at(0);
  run(rank, give_up_after(call, 300'000'000), false);
  EXPECT_NE(machine_.mailbox(rank).timed_out, 0u);
  run(rank, machine_.calls(rank).launch_of_nothing(), false);
  const auto began = std::chrono::steady_clock::now();
  run(rank, give_up_after(call, 30'000'000'000), false);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

/// Launches run beside one another if messages use several rings.
TEST_P(Started, LaunchesSideBySideCount) {
  const DeviceLaunch nothing = machine_.calls(0).launch_of_nothing();
  for (int turn = 0; turn < 100; ++turn) {
    std::vector<std::jthread> sides;
    for (int side = 0; side < 4; ++side) sides.emplace_back([&] { run(0, nothing, false); });
    sides.clear();
    ASSERT_TRUE(launch_counts(0).have_ended()) << "turn " << turn;
  }
}

/// An empty launch, of a rank that has no part in a call, waits for no peer.
TEST_P(Started, ALaunchOfNothingCounts) {
  DeviceLaunch nothing = machine_.calls(0).launch_of_nothing();
  mark(nothing, hash);
  run(0, nothing, false);
  EXPECT_EQ(marked(0, 1), std::uint64_t{1} << 32 | hash);
  EXPECT_TRUE(launch_counts(0).have_ended());
  on_all_ranks([&](std::uint32_t rank) {
    for (const DeviceLaunch& launch : launches(rank, hash + 1)) run(rank, launch, false);
    EXPECT_EQ(launch_counts(rank).collectives, rank == 0 ? 2u : 1u);
  });
}

}  // namespace
}  // namespace strait::testing
