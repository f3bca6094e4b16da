// Which collectives of a group go into one launch, what part of it each gets, and what happens if groups differ.
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <variant>
#include <vector>
#include "launches/device_aggregates.hpp"
#include "plan/request.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

constexpr std::uint32_t ranks = 3, lanes = 16;

Call all_reduce(std::size_t count, const std::byte* send, std::byte* receive) {
  Call call;
  call.collective = Collective::all_reduce;
  call.type = DataType::float32;
  call.count = count;
  call.send = send;
  call.receive = receive;
  return call;
}

class AggregateRules : public ::testing::Test {
 protected:
  Call call(std::size_t count, Collective collective = Collective::all_reduce) {
    Call call = all_reduce(count, input_.data() + next_ * place_bytes, output_.data() + next_ * place_bytes);
    call.collective = collective;
    ++next_;
    return call;
  }
  /// Returns how many of `calls` copies of a call, each with its own buffers, go into one launch.
  std::size_t together(std::size_t calls, std::size_t count, const std::function<void(std::vector<Call>&)>& change) {
    next_ = 0;
    std::vector<Call> group;
    for (std::size_t i = 0; i < calls; ++i) group.push_back(call(count));
    change(group);
    return aggregated_calls(machine_.calls(0), group);
  }
  std::size_t together(std::size_t calls, std::size_t count) {
    return together(calls, count, [](auto&) {});
  }
  static constexpr std::size_t place_bytes = 64 << 10;
  std::size_t next_ = 0;
  Bytes input_{Bytes(64 * place_bytes)}, output_{Bytes(64 * place_bytes)};
  Machine machine_{ranks, lanes, {.flagged_bytes = 32 << 10, .algorithm = "one_hop"}};
};

TEST_F(AggregateRules, SmallCallsGoTogetherWhileThereAreLanes) {
  EXPECT_EQ(together(1, 10), 1u);
  EXPECT_EQ(together(5, 10), 5u);
  EXPECT_EQ(together(40, 10), lanes);
  EXPECT_EQ(together(40, 2048), lanes) << "of four lanes each by themselves";
  EXPECT_EQ(together(40, 8192), lanes) << "of all lanes each by themselves";
}

TEST_F(AggregateRules, CallsInBulkGoTogetherToo) {
  EXPECT_EQ(together(40, 8193), lanes) << "half as many blocks as lanes";
  const std::size_t bulk_lanes =
      machine_.calls(0).ring().slots[static_cast<std::size_t>(kernels::Protocol::bulk)].lanes;
  const auto of = [&](std::size_t count, bool staged) {
    kernels::Ring ring = machine_.calls(0).ring();
    ring.staged = staged;
    const DeviceCalls calls(ring, nullptr, {.flagged_bytes = 32 << 10, .hops = Hops::one});
    return aggregated_calls(calls, std::vector<Call>(40, call(count)));
  };
  const std::size_t all = std::min<std::size_t>(bulk_lanes, kernels::max_aggregated);
  EXPECT_EQ(of(8193, true), all);
  EXPECT_EQ(of((8 << 20) - 1, false), all);
  EXPECT_EQ(of(8 << 20, false), 1u) << "long enough by itself";
  EXPECT_EQ(of((256 << 10) - 1, true), all);
  EXPECT_EQ(of(256 << 10, true), 1u) << "of 1 MB, whose blocks serve other lanes";
}

/// If calls would take more lanes than there are, each gets one, and the rest are shared out by the calls' bytes.
TEST_F(AggregateRules, LargeCallsHaveMoreLanes) {
  const std::vector<Call> group{call(8192), call(10), call(4096), call(10)};
  ASSERT_EQ(aggregated_calls(machine_.calls(0), group), 4u);
  const auto launches = launches_of_aggregate(machine_.calls(0), group);
  ASSERT_EQ(launches.size(), 1u);
  std::vector<std::uint32_t> taken;
  for (std::uint32_t i = 0; i < 4; ++i) taken.push_back(launches[0].argument.calls[i].lanes);
  EXPECT_GT(taken[0], taken[2]);
  EXPECT_GT(taken[2], 1u);
  EXPECT_EQ(taken[1], 1u);
  EXPECT_EQ(taken[3], 1u);
  EXPECT_LE(launches[0].blocks, lanes);
}

TEST_F(AggregateRules, NoMoreThanArgumentsHold) {
  kernels::Ring ring = machine_.calls(0).ring();
  ring.slots[static_cast<std::size_t>(kernels::Protocol::packets)].lanes = 100;  // as many as with NVLink
  const DeviceCalls calls(ring, nullptr, {.max_sms = 100, .flagged_bytes = 32 << 10});
  const std::vector<Call> group(40, call(10));
  EXPECT_EQ(aggregated_calls(calls, group), kernels::max_aggregated);
}

TEST_F(AggregateRules, OneKernelCarriesThem) {
  EXPECT_EQ(together(5, 10, [](auto& group) { group[3].type = DataType::int32; }), 3u);
  EXPECT_EQ(together(5, 10, [](auto& group) { group[3].op = ReduceOp::max; }), 5u);
  EXPECT_EQ(together(5, 10, [](auto& group) { group[2].collective = Collective::all_gather; }), 2u);
  EXPECT_EQ(together(5, 10,
                     [](auto& group) {
                       for (Call& each : group) each.collective = Collective::all_gather;
                       group[1].type = DataType::uint8;
                       group[2].collective = Collective::scatter;
                     }),
            5u)
      << "what is only copied has no type";
}

TEST_F(AggregateRules, OthersGoByThemselves) {
  EXPECT_EQ(together(3, 10, [](auto& group) { group[1].collective = Collective::barrier; }), 1u);
  EXPECT_EQ(together(3, 10, [](auto& group) { group[1].count = 0; }), 1u);
  EXPECT_EQ(together(3, 10, [](auto& group) { group[2].max_sms = 2; }), 2u) << "another bound";
  EXPECT_EQ(together(3, 10, [](auto& group) { group[2].max_sms = 20; }), 2u)
      << "as many blocks in packets, not in bulk";
  EXPECT_EQ(together(3, 10,
                     [](auto& group) {
                       for (Call& each : group) each.max_sms = 2;
                     }),
            2u);
  EXPECT_EQ(together(3, 10,
                     [](auto& group) {
                       for (Call& each : group) {
                         each.collective = Collective::reduce;
                         each.algorithm = find_algorithm("two_hop");
                       }
                     }),
            1u);
}

/// All-reduces in two hops share a launch with others.
TEST_F(AggregateRules, AllReducesGoTogetherInTwoHops) {
  std::vector<Call> group{call(1000), call(2001), call(4000)};
  group[1].algorithm = group[2].algorithm = find_algorithm("two_hop");
  ASSERT_EQ(aggregated_calls(machine_.calls(0), group), 3u);
  const auto launches = launches_of_aggregate(machine_.calls(0), group);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].argument.calls[0].whole_bytes, 0u);
  for (const std::size_t i : {1u, 2u}) {
    const kernels::AggregatedCall& two_hops = launches[0].argument.calls[i];
    EXPECT_EQ(two_hops.whole_bytes, group[i].count * sizeof(float));
    EXPECT_EQ(two_hops.bytes % 16, 0u);
    EXPECT_GE(two_hops.bytes * ranks, two_hops.whole_bytes);
    EXPECT_LT(two_hops.bytes * (ranks - 1), two_hops.whole_bytes);
  }
}

/// Packets carry flags beside the data, whose cost matters if there are many calls.
TEST_F(AggregateRules, MuchOfWhatAloneIsShortGoesInBulk) {
  const auto protocol = [&](std::size_t calls) {
    next_ = 0;
    std::vector<Call> group;
    for (std::size_t i = 0; i < calls; ++i) group.push_back(call(4096));
    EXPECT_EQ(aggregated_calls(machine_.calls(0), group), calls);
    return launches_of_aggregate(machine_.calls(0), group).at(0).protocol;
  };
  EXPECT_EQ(protocol(4), kernels::Protocol::packets) << "twice what goes in packets alone";
  EXPECT_EQ(protocol(5), kernels::Protocol::bulk);
}

/// This holds for any number of ranks that share the memory: with many, bulk has fewer lanes than packets have.
TEST(AggregatedCalls, NoneHasLanesOfAnother) {
  std::vector<std::byte> buffer(std::size_t{64} << 20);
  std::size_t launched = 0;
  for (std::uint32_t of = 2; of <= kernels::max_ranks; ++of)
    for (const auto kind : {kernels::ArenaKind::nvlink, kernels::ArenaKind::pcie, kernels::ArenaKind::host})
      for (const std::size_t count : {10u, 300u, 5000u, 100000u})
        for (const std::size_t many : {2u, 7u, 32u}) {
          kernels::Ring ring{};
          ring.ranks = of;
          ring.staged = kind == kernels::ArenaKind::host;
          const auto layout = kernels::arena_layout(kind, of);
          std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
          const DeviceCalls calls(ring, nullptr, {.flagged_bytes = 2000});
          std::vector<Call> group;
          for (std::size_t i = 0; i < many; ++i)
            group.push_back(all_reduce(count, buffer.data() + i * 400000, buffer.data() + (32 + i) * 400000));
          const std::size_t together = aggregated_calls(calls, group);
          if (together == 1) continue;
          const auto launches = launches_of_aggregate(calls, std::span(group).first(together));
          ASSERT_EQ(launches.size(), 1u);
          std::uint32_t lanes_end = 0, blocks_end = 0;
          for (std::uint32_t i = 0; i < launches[0].argument.count; ++i) {
            const kernels::AggregatedCall& call = launches[0].argument.calls[i];
            EXPECT_EQ(call.first_lane, lanes_end);
            EXPECT_EQ(call.first_block, blocks_end);
            EXPECT_LE(call.lanes, call.blocks * call.width);
            lanes_end += std::uint32_t{call.blocks} * call.width;
            blocks_end += call.blocks;
          }
          EXPECT_LE(lanes_end, ring.slots[static_cast<std::size_t>(launches[0].protocol)].lanes)
              << many << " calls of " << count << " elements on " << of << " ranks";
          EXPECT_EQ(launches[0].blocks, blocks_end);
          ++launched;
        }
  EXPECT_GT(launched, 100u);
}

/// A rank's own buffers and streams must not change which calls go together, only how this rank launches them.
TEST_F(AggregateRules, WhatSharesBuffersOrHasOtherStreamsIsLaunchedInOrder) {
  const auto launches = [&](const std::function<void(std::vector<Call>&)>& change) {
    next_ = 0;
    std::vector<Call> group{call(10), call(20), call(30, Collective::reduce_scatter)};
    change(group);
    EXPECT_EQ(aggregated_calls(machine_.calls(0), group), 3u);
    return launches_of_aggregate(machine_.calls(0), group);
  };
  EXPECT_EQ(launches([](auto&) {}).size(), 1u);
  EXPECT_EQ(launches([](auto& group) { group[1].send = group[0].send; }).size(), 1u) << "both only read it";
  EXPECT_EQ(launches([](auto& group) { group[2].receive = group[0].receive; }).size(), 3u);
  EXPECT_EQ(launches([](auto& group) { group[2].send = group[1].receive; }).size(), 3u);
  EXPECT_EQ(launches([](auto& group) {
              group[0].send = static_cast<const std::byte*>(group[2].receive) + 119;  // the last byte of that output
            }).size(),
            3u);
  const auto multiplied_by = [&](std::size_t written, bool is_address) {
    return launches([&](auto& group) {
             group[1].op = ReduceOp::premul_sum;
             group[1].premul_scalar = {reinterpret_cast<std::uintptr_t>(group[written].receive), is_address};
           })
        .size();
  };
  EXPECT_EQ(multiplied_by(0, true), 3u) << "what an earlier one writes";
  EXPECT_EQ(multiplied_by(2, true), 3u) << "what a later one writes";
  EXPECT_EQ(multiplied_by(0, false), 1u) << "no address";
  const auto alone = launches([](auto& group) { group[1].stream = &group; });
  ASSERT_EQ(alone.size(), 3u);
  std::uint32_t first_lane = 0;
  for (const AggregateLaunch& launch : alone) {
    ASSERT_EQ(launch.argument.count, 1u);
    EXPECT_EQ(launch.argument.calls[0].first_lane, first_lane);
    first_lane += launch.argument.calls[0].lanes;
    EXPECT_EQ(launch.blocks, first_lane);
  }
}

/// Each call is marked as started with its own number, also when a graph is launched again.
TEST_F(AggregateRules, EachCallIsMarkedAsStarted) {
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Bytes input(12000), output(12000);
      std::vector<Call> group;
      for (std::size_t i = 0; i < 3; ++i) {
        group.push_back(all_reduce(10 + i, input.data() + i * 4000, output.data() + i * 4000));
        group.back().aggregated = i != 0;
      }
      const auto launches = launches_of_aggregate(machine_.calls(rank), group);
      for (std::uint64_t number = 1; number <= 7; number += 3) {
        machine_.run(launches.at(0));
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_EQ(std::atomic_ref(machine_.launch_counts(rank).started.calls[number + i]).load(),
                    (number + i) << 32 | mark_of(signature(group[i])));
      }
      EXPECT_EQ(machine_.launch_counts(rank).collectives, 9u);
      EXPECT_EQ(machine_.launch_counts(rank).started.calls[10], 0u);
    });
}

/// Rank 0 groups its calls differently from the others. No rank takes data that is meant for another call: it waits,
/// and gives up.
void group_differently(std::size_t count, std::byte first_byte, std::uint32_t members, const char* algorithm) {
  const std::size_t bytes = count * sizeof(float);
  std::vector<std::jthread> threads;
  std::vector<Bytes> outputs(members, Bytes(2 * bytes, poison));
  Machine machine(members, lanes, {.flagged_bytes = 32 << 10, .algorithm = algorithm});
  for (std::uint32_t rank = 0; rank < members; ++rank)
    threads.emplace_back([&, rank] {
      Bytes input(2 * bytes);
      std::vector<Call> group;
      for (std::size_t i = 0; i < 2; ++i)
        group.push_back(all_reduce(count, input.data() + i * bytes, outputs[rank].data() + i * bytes));
      if (rank == 0) {
        group[1].aggregated = true;
        AggregateLaunch launch = launches_of_aggregate(machine.calls(0), group).at(0);
        launch.argument.ring.timeout_ns = 400'000'000;
        machine.run(launch);
      } else {
        for (const Call& each : group)
          for (DeviceLaunch launch : machine.calls(rank).launches_of(each)) {
            std::visit([](auto& argument) { argument.ring.timeout_ns = 400'000'000; }, launch.argument);
            machine.run({launch}, DataType::float32);
          }
      }
    });
  threads.clear();
  for (std::uint32_t rank = 0; rank < members; ++rank) {
    EXPECT_NE(machine.mailbox(rank).timed_out, 0u) << "rank " << rank;
    EXPECT_EQ(outputs[rank][0], first_byte) << "rank " << rank;
    EXPECT_EQ(outputs[rank][bytes], poison) << "rank " << rank;
  }
}
TEST(AggregatedCalls, WhoGroupsDifferentlyTakesNothing) {
  group_differently(10, std::byte{0}, 2, "");  // the first call is the same on both
}
TEST(AggregatedCalls, WhatIsCutForAShareFitsNothingElse) { group_differently(8192, poison, 2, ""); }
TEST(AggregatedCalls, WhatTakesTwoHopsInAGroupFitsNothingElse) { group_differently(10, poison, 3, "two_hop"); }

}  // namespace
}  // namespace strait::testing
