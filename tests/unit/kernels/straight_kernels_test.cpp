// Calls that write directly into the peers' outputs, by the kernel of src/kernels on the CPU.
#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/emulated_collectives.hpp"
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

namespace strait::testing {
namespace {

constexpr std::uint16_t hash = 77;

class Straight : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  Straight() : machine_(GetParam(), 3, {.p2p = true, .small_slots = true, .together = true}) {}
  std::uint32_t ranks() const { return GetParam(); }
  /// The calls of all ranks, and where their outputs are.
  struct Calls {
    std::vector<std::unique_ptr<CheckedCall>> calls;
    std::array<std::byte*, kernels::max_ranks> outputs{};
  };
  Calls calls_of(const CheckedCase& of) const {
    Calls all;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      all.calls.push_back(std::make_unique<CheckedCall>(of, rank));
      all.outputs[rank] = static_cast<std::byte*>(all.calls[rank]->call().receive);
    }
    return all;
  }
  /// Checks the call on all ranks. Rank `late` begins when the others have waited for it.
  void check(const CollectiveCase& c, std::uint32_t late = ~0u) {
    const CheckedCase of(c, ranks());
    const Calls all = calls_of(of);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      threads.emplace_back([&, rank] {
        if (rank == late) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          EXPECT_TRUE(all.calls[rank]->is_untouched()) << "written before its stream has come to the call";
        }
        machine_.run({machine_.calls(rank).straight_launch_of(all.calls[rank]->call(), all.outputs, hash)}, c.type);
        all.calls[rank]->verify();
      });
  }

  Machine machine_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, Straight, ::testing::Values(2u, 3u, 4u),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(Straight, HaveTheBitsOfTheReference) {
  std::uint64_t seed = 1;
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all})
    for (const std::size_t count : {1, 7, 500, 4096, 100'000, 200'003})
      for (const bool in_place : {false, true}) {
        if (in_place && collective == Collective::all_to_all) continue;
        CollectiveCase c;
        c.collective = collective;
        c.type = std::array{DataType::uint8, DataType::bfloat16, DataType::float32}[seed % 3];
        c.count = count;
        c.in_place = in_place;
        c.misalignment_bytes = seed % 2 == 0 ? size_bytes(c.type) : 0;
        c.seed = ++seed;
        check(c);
      }
}

/// With odd lengths, parts begin at all distances from multiples of 16 bytes, both in inputs and in outputs, and short
/// parts have no whole granule.
TEST_P(Straight, PartsOfAllAlignments) {
  CollectiveCase c;
  c.type = DataType::uint8;
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all})
    for (const std::size_t least : {15, 8192 - 8})
      for (std::size_t count = least; count < least + 33; ++count)
        for (const bool in_place : {false, true}) {
          if (in_place && collective == Collective::all_to_all) continue;
          c.collective = collective;
          c.count = count;
          c.in_place = in_place;
          c.misalignment_bytes = c.seed++ % 16;
          check(c);
        }
}

TEST_P(Straight, OutputsAreNotWrittenBeforeTheCall) {
  CollectiveCase c;
  c.collective = Collective::all_gather;
  c.type = DataType::uint8;
  c.count = 5000;
  for (std::uint32_t late = 0; late < ranks(); ++late) check(c, late);
}

/// The counters of lanes continue from call to call, whichever kernel uses them.
TEST_P(Straight, BesideCallsThroughSlots) {
  CollectiveCase c;
  c.type = DataType::uint8;
  for (int turn = 0; turn < 12; ++turn) {
    c.collective = turn % 2 == 0 ? Collective::all_gather : Collective::all_to_all;
    c.count = static_cast<std::size_t>(3000 + 500 * turn);
    c.seed = static_cast<std::uint64_t>(turn) + 1;
    if (turn % 3 == 0)
      testing::check(machine_, c);
    else
      check(c);
  }
}

/// Ranks that disagree about where the outputs are never meet, and report a timeout.
TEST_P(Straight, OfOtherPlacesGivesUp) {
  CollectiveCase c;
  c.collective = Collective::all_gather;
  c.type = DataType::uint8;
  c.count = 5000;
  const CheckedCase of(c, ranks());
  const Calls all = calls_of(of);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    threads.emplace_back([&, rank] {
      const auto other = static_cast<std::uint16_t>(hash + rank);
      DeviceLaunch launch = machine_.calls(rank).straight_launch_of(all.calls[rank]->call(), all.outputs, other);
      std::visit([](auto& argument) { argument.ring.timeout_ns = 20'000'000; }, launch.argument);
      machine_.run({launch}, c.type);
    });
  threads.clear();
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    EXPECT_TRUE(all.calls[rank]->is_untouched()) << rank;
    EXPECT_NE(machine_.mailbox(rank).timed_out, 0u) << rank;
    EXPECT_EQ(machine_.launch_counts(rank).chunks_claimed, 0u) << "what the next call begins with";
    EXPECT_EQ(machine_.launch_counts(rank).blocks_done, 0u);
  }
}

/// Every warp has something to do, and in long calls several chunks, so that fast warps can take more.
TEST(WritesDirectly, ChunksAreShort) {
  const Machine four(4, 0, {.p2p = true});
  std::array<std::byte*, kernels::max_ranks> outputs{};
  const std::byte input{};
  std::byte output{};
  struct Case {
    std::size_t bytes, least_of_a_warp;
    std::uint32_t blocks;
  };
  constexpr std::size_t mb = std::size_t{1} << 20;
  for (const Case& of : {Case{1, 1, 4}, Case{2 * mb, 1, 64}, Case{4 * mb, 2, 64}, Case{8 * mb, 8, 32}}) {
    CollectiveCase c;
    c.collective = Collective::all_gather;
    c.type = DataType::uint8;
    c.count = of.bytes;
    const DeviceLaunch launch = four.calls(0).straight_launch_of(call_of(c, &input, &output, Bytes(8)), outputs, hash);
    const auto& call = std::get<kernels::StraightExchange>(launch.argument);
    const std::size_t chunks = (of.bytes + call.send[0].chunk_bytes - 1) / call.send[0].chunk_bytes * 4;
    EXPECT_EQ(launch.blocks, of.blocks) << of.bytes;
    EXPECT_EQ(launch.threads % 32, 0u);
    EXPECT_LE(launch.threads, kernels::max_threads);
    EXPECT_GE(chunks, of.least_of_a_warp * launch.blocks * launch.threads / 32) << of.bytes;
  }
}

TEST(WritesDirectly, WhatIsLargeAndWritesOverNothing) {
  const Machine pair(2, 0, {.p2p = true}), four(4, 0, {.p2p = true}), staged(4, 0, {});
  const std::byte input{};
  std::byte output{};
  const auto goes = [&](const Machine& machine, Collective collective, bool in_place, std::size_t count,
                        std::uint32_t max_sms = 0) {
    CollectiveCase c;
    c.collective = collective;
    c.type = DataType::uint8;
    c.count = count;
    Call call = call_of(c, in_place ? &output : &input, &output, Bytes(8));
    call.max_sms = max_sms;
    return machine.calls(0).writes_directly(call);
  };
  const std::size_t count = std::size_t{4} << 20;
  EXPECT_TRUE(goes(four, Collective::all_gather, false, count));
  EXPECT_TRUE(goes(four, Collective::all_gather, true, count));
  EXPECT_TRUE(goes(four, Collective::all_to_all, false, count));
  EXPECT_FALSE(goes(four, Collective::all_to_all, true, count)) << "peers would write over what is still to be sent";
  EXPECT_FALSE(goes(four, Collective::all_gather, false, count - 1));
  EXPECT_FALSE(goes(four, Collective::all_reduce, false, count));
  EXPECT_FALSE(goes(four, Collective::all_gather, false, count, 16)) << "not measured with few blocks";
  EXPECT_TRUE(goes(pair, Collective::all_gather, false, 2 * count));
  EXPECT_FALSE(goes(pair, Collective::all_gather, false, 2 * count - 1));
  EXPECT_FALSE(goes(staged, Collective::all_gather, false, count)) << "no peer reaches it";
}

}  // namespace
}  // namespace strait::testing
