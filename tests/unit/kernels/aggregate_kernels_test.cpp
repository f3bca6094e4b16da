// Small collectives of a group in one launch, by the kernels of src/kernels on the CPU, with the protocols as they are.
#include "support/emulated_collectives.hpp"
//
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>

#include "communicator/aggregates.hpp"
#include "communicator/started_calls.hpp"
#include "plan/request.hpp"

namespace strait::testing {
namespace {

/// What all ranks call in one group, each time with other numbers.
std::vector<CheckedCase> random_group(std::uint32_t ranks, std::size_t calls, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<CheckedCase> group;
  // Runs of reductions of one type, and of calls that add nothing up, now and then something else.
  bool reduces = random() % 2 == 0;
  DataType type = DataType::float32;
  for (std::size_t i = 0; i < calls; ++i) {
    if (random() % 8 == 0) reduces = !reduces;
    if (random() % 8 == 0) type = std::array{DataType::bfloat16, DataType::int32, DataType::float32}[random() % 3];
    CollectiveCase c;
    do c.collective = collectives[random() % std::size(collectives)];
    while (is_reduction(c.collective) != reduces);
    c.type = reduces ? type : std::array{DataType::uint8, DataType::float64, DataType::float16}[random() % 3];
    c.op = static_cast<ReduceOp>(random() % reduce_op_count);
    c.count = random() % 10 == 0 ? random() % 3000 : random() % 200;
    c.in_place = random() % 3 == 0;
    c.misalignment_bytes = random() % 4 == 0 ? size_bytes(c.type) : 0;
    c.root = static_cast<std::uint32_t>(random() % ranks);
    c.seed = random() % 1000000;
    group.emplace_back(c, ranks);
  }
  return group;
}

/// As a communicator does. How many launches that takes.
std::size_t run_group(Machine& machine, std::uint32_t rank, std::vector<Call> calls) {
  std::size_t launched = 0;
  for (std::span<Call> rest(calls); !rest.empty();) {
    const std::size_t together = aggregated_calls(machine.calls(rank), rest);
    if (together == 1) {
      machine.run(rank, rest.front());
      ++launched;
    } else {
      for (Call& call : rest.subspan(1, together - 1)) call.aggregated = true;
      const auto launches = launches_of_aggregate(machine.calls(rank), rest.first(together));
      for (const AggregateLaunch& launch : launches) machine.run(launch);
      launched += launches.size();
    }
    rest = rest.subspan(together);
  }
  return launched;
}

/// The group on all ranks, bit by bit. Those with `alone` launch their calls one by one, which their peers do not.
void check_group(Machine& machine, const std::vector<CheckedCase>& group, std::uint32_t alone) {
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < machine.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      std::deque<CheckedCall> checked;
      std::vector<Call> calls;
      for (const CheckedCase& of : group) {
        checked.emplace_back(of, rank);
        calls.push_back(checked.back().call());
        const bool has_other_stream = (alone >> rank & 1) != 0;
        if (has_other_stream) calls.back().stream = reinterpret_cast<void*>(calls.size());
      }
      const std::size_t launches = run_group(machine, rank, calls);
      EXPECT_EQ(launches == calls.size(), (alone >> rank & 1) != 0) << launches << " launches";
      for (CheckedCall& each : checked) each.verify();
    });
}

struct Shape {
  const char* name;
  std::uint32_t ranks;
  bool p2p;
  std::uint32_t lanes;
  std::size_t flagged_bytes = 1 << 20;
  const char* algorithm = "";
};
class Aggregates : public ::testing::TestWithParam<Shape> {
 protected:
  Machine machine_{GetParam().ranks,
                   GetParam().lanes,
                   {.flagged_bytes = GetParam().flagged_bytes,
                    .p2p = GetParam().p2p,
                    .algorithm = GetParam().algorithm,
                    .small_slots = true}};
};
INSTANTIATE_TEST_SUITE_P(Shapes, Aggregates,
                         ::testing::Values(Shape{"Alone", 1, false, 16}, Shape{"Two", 2, true, 16},
                                           Shape{"TwoOfFewLanes", 2, false, 3}, Shape{"Three", 3, false, 32},
                                           Shape{"Five", 5, true, 12}, Shape{"TwoInBulk", 2, true, 32, 0},
                                           Shape{"ThreeInBulk", 3, false, 32, 0}, Shape{"FourOfBoth", 4, true, 32, 300},
                                           Shape{"TwoHops", 3, false, 32, 0, "two_hop"},
                                           Shape{"TwoHopsInPackets", 3, false, 32, 1 << 20, "two_hop"},
                                           Shape{"TwoHopsOfFewBlocks", 4, true, 5, 300, "two_hop"}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Aggregates, GroupsHaveTheBitsOfTheirCalls) {
  for (std::uint64_t seed = 1; seed <= 3 && !HasFailure(); ++seed)
    check_group(machine_, random_group(machine_.ranks(), 3 + seed * 9, seed), 0);
}

/// Which ranks launch their calls one by one is a matter of their own.
TEST_P(Aggregates, RanksMayLaunchOneByOne) {
  for (std::uint64_t seed = 1; seed <= 3 && !HasFailure(); ++seed)
    check_group(machine_, random_group(machine_.ranks(), 12, 50 + seed), static_cast<std::uint32_t>(seed));
}

/// Calls that need one another's results: every rank launches them one by one, in order.
TEST_P(Aggregates, AChainOfCallsHasItsResults) {
  constexpr std::size_t count = 300, links = 5;
  const std::uint32_t ranks = machine_.ranks();
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<std::uint32_t> chain((links + 1) * count, ~0u);
      for (std::size_t i = 0; i < count; ++i) chain[i] = static_cast<std::uint32_t>(i) + rank;
      std::vector<Call> calls(links);
      for (std::size_t link = 0; link < links; ++link) {
        calls[link].collective = Collective::all_reduce;
        calls[link].type = DataType::uint32;
        calls[link].count = count;
        calls[link].send = chain.data() + link * count;
        calls[link].receive = chain.data() + (link + 1) * count;
      }
      EXPECT_EQ(run_group(machine_, rank, calls), links);
      for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t expected = ranks * static_cast<std::uint32_t>(i) + ranks * (ranks - 1) / 2;
        for (std::size_t link = 1; link <= links; ++link, expected *= ranks)
          ASSERT_EQ(chain[link * count + i], expected) << "link " << link << ", element " << i << ", rank " << rank;
      }
    });
}

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

std::uint32_t by_two_hops() { return 1 + static_cast<std::uint32_t>(find_algorithm("two_hop") - catalogue().data()); }

class AggregateRules : public ::testing::Test {
 protected:
  Call call(std::size_t count, Collective collective = Collective::all_reduce) {
    Call call = all_reduce(count, input_.data() + next_ * place_bytes, output_.data() + next_ * place_bytes);
    call.collective = collective;
    ++next_;
    return call;
  }
  /// How many go together of `calls` copies, at places of their own.
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
  const std::size_t bulk_lanes = machine_.calls(0).ring().slots[static_cast<std::size_t>(kernels::Wire::bulk)].lanes;
  const auto of = [&](std::size_t count, std::size_t flagged_bytes) {
    const DeviceCalls calls(machine_.calls(0).ring(), nullptr,
                            {.flagged_bytes = flagged_bytes, .algorithm = "one_hop"});
    return aggregated_calls(calls, std::vector<Call>(40, call(count)));
  };
  EXPECT_EQ(of(8193, 32 << 10), std::min<std::size_t>(bulk_lanes, kernels::max_aggregated));
  EXPECT_EQ(of((8 << 20) - 1, 32 << 10), std::min<std::size_t>(bulk_lanes, kernels::max_aggregated));
  EXPECT_EQ(of(8 << 20, 32 << 10), 1u) << "long enough by itself";
}

/// Where they would take more lanes than there are, each has one, and the rest by its bytes.
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
  ring.slots[static_cast<std::size_t>(kernels::Wire::packets)].lanes = 100;  // as over NVLink
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
                         each.algorithm = by_two_hops();
                       }
                     }),
            1u);
}

/// In the same launch as others.
TEST_F(AggregateRules, AllReducesGoTogetherInTwoHops) {
  std::vector<Call> group{call(1000), call(2001), call(4000)};
  group[1].algorithm = group[2].algorithm = by_two_hops();
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

/// Packets carry twice the bytes, which count where there are many calls.
TEST_F(AggregateRules, MuchOfWhatAloneIsShortGoesInBulk) {
  const auto wire = [&](std::size_t calls) {
    next_ = 0;
    std::vector<Call> group;
    for (std::size_t i = 0; i < calls; ++i) group.push_back(call(4096));
    EXPECT_EQ(aggregated_calls(machine_.calls(0), group), calls);
    return launches_of_aggregate(machine_.calls(0), group).at(0).wire;
  };
  EXPECT_EQ(wire(8), kernels::Wire::packets) << "four times what goes in packets alone";
  EXPECT_EQ(wire(9), kernels::Wire::bulk);
}

/// However many ranks share the memory: of many, bulk has fewer lanes than packets have.
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
          EXPECT_LE(lanes_end, ring.slots[static_cast<std::size_t>(launches[0].wire)].lanes)
              << many << " calls of " << count << " elements on " << of << " ranks";
          EXPECT_EQ(launches[0].blocks, blocks_end);
          ++launched;
        }
  EXPECT_GT(launched, 100u);
}

/// What a rank's own buffers and streams are must not change what goes together, only how this rank launches it.
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
              group[0].send = static_cast<const std::byte*>(group[2].receive) + 119;  // its last byte
            }).size(),
            3u);
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

/// Each as the collective of its own number, in graphs that are launched again, too.
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
          EXPECT_EQ(std::atomic_ref(machine_.mailbox(rank).started[number + i]).load(),
                    (number + i) << 32 | StartedCalls::mark_of(signature(group[i])));
      }
      EXPECT_EQ(machine_.launch_counts(rank).collectives, 9u);
      EXPECT_EQ(machine_.mailbox(rank).started[10], 0u);
    });
}

/// A rank that groups its calls differently never gets data that are meant for others: it waits, and gives up.
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
  group_differently(10, std::byte{0}, 2, "");  // the first is the same call on both
}
TEST(AggregatedCalls, WhatIsCutForAShareFitsNothingElse) { group_differently(8192, poison, 2, ""); }
TEST(AggregatedCalls, WhatTakesTwoHopsInAGroupFitsNothingElse) { group_differently(10, poison, 3, "two_hop"); }

}  // namespace
}  // namespace strait::testing
