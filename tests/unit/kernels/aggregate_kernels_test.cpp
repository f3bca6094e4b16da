// Small collectives of a group in one launch, by the kernels of src/kernels on the CPU, with their real protocols.
#include "support/emulated_collectives.hpp"
//
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "device/started_calls.hpp"
#include "host/collective_case.hpp"
#include "launches/device_aggregates.hpp"
#include "plan/request.hpp"

namespace strait::testing {
namespace {

/// Returns the calls that all ranks make in one group, different for each seed.
std::vector<CheckedCase> random_group(std::uint32_t ranks, std::size_t calls, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<CheckedCase> group;
  // Runs of reductions of one type and runs of calls that reduce nothing; occasionally one changes to the other, or the
  // type changes.
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

/// Launches a group as a communicator does. Returns the number of launches.
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

/// Runs the group on all ranks and checks it bit by bit. Ranks in the mask `alone`, unlike their peers, launch their
/// calls one by one, because these are on different streams.
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

/// Each rank may decide by itself to launch its calls one by one.
TEST_P(Aggregates, RanksMayLaunchOneByOne) {
  for (std::uint64_t seed = 1; seed <= 3 && !HasFailure(); ++seed)
    check_group(machine_, random_group(machine_.ranks(), 12, 50 + seed), static_cast<std::uint32_t>(seed));
}

/// Calls that use one another's results: every rank launches them one by one, in order.
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

}  // namespace
}  // namespace strait::testing
