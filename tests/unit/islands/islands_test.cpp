// Calls of GPU ranks over islands, step by step and without a GPU: the joint result of all ranks' steps.
#include "launches/device_islands.hpp"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "base/deadline.hpp"
#include "executor/host/host_program.hpp"
#include "host/collective_case.hpp"
#include "plan/request.hpp"
#include "support/blocks_of_lengths.hpp"
#include "support/island_reference.hpp"
#include "transports/loopback/loopback.hpp"
#include "unit/islands/island_calls.hpp"

namespace strait::testing {
namespace {

TEST(DeviceIslands, RandomCallsOverIslandsOfOneRank) {
  EXPECT_GT(carry_random_calls(90, of_one_rank), 60);
  EXPECT_EQ(carry_random_calls(60, of_one_rank, random_wire_case), 60);
}

/// Islands of one rank have nothing to exchange inside, so nothing is copied, and the call is cut only by what carries
/// it across.
TEST(DeviceIslands, OfOneRankCrossesAsItIs) {
  const strait::DeviceIslands islands(1, {{0}, {1}, {2}}, nullptr, scratch_bytes);
  std::vector<float> input(900'001), output(3 * input.size()), residual(input.size());
  for (const Collective collective : carried)
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) {
      Call call;
      call.collective = collective;
      call.op = op;
      call.count = input.size();
      call.root = 2;
      call.send = input.data();
      call.receive = output.data();
      const std::vector<IslandStep> steps = islands.steps_of(call);
      if (is_reduction(collective) && op == ReduceOp::premul_sum) {
        EXPECT_GT(steps.size(), 1u) << name(collective) << ": a rank's scalar is its own";
        continue;
      }
      ASSERT_EQ(steps.size(), 1u) << name(collective);
      const IslandStep& whole = steps.front();
      EXPECT_TRUE(whole.among == IslandStep::Among::across && whole.part.whole == 0) << name(collective);
      EXPECT_TRUE(whole.call.send == call.send && whole.call.receive == call.receive) << name(collective);
      EXPECT_TRUE(whole.call.count == call.count && whole.call.root == call.root) << name(collective);
      EXPECT_TRUE(whole.call.op == op || !is_reduction(collective)) << name(collective);
    }
  Call reduction;
  reduction.count = residual.size() / 3;
  reduction.wire = WireFormat::int8;
  reduction.residual = residual.data();
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    reduction.collective = collective;
    const std::vector<IslandStep> steps = islands.steps_of(reduction);
    ASSERT_EQ(steps.size(), 1u) << name(collective);
    EXPECT_TRUE(steps[0].call.wire == WireFormat::int8 && steps[0].call.residual == residual.data());
  }
}

TEST(DeviceIslands, RandomCallsOverIslandsOfOneSize) { EXPECT_GT(carry_random_calls(120, of_one_size), 80); }
TEST(DeviceIslands, RandomCallsOverOtherIslands) { EXPECT_GT(carry_random_calls(100, of_other_sizes), 65); }

TEST(DeviceIslands, RandomExchanges) {
  EXPECT_GT(carry_random_calls(90, of_one_size, random_exchange), 20);
  EXPECT_GT(carry_random_calls(90, of_other_sizes, random_exchange), 20);
}

/// Blocks within an island do not cross, and others go directly to their destination.
TEST(DeviceIslands, ExchangesCrossFromRankToRank) {
  for (const Islands& islands : {Islands{{0, 3}, {1, 2}}, Islands{{0, 1, 2}, {3, 4, 5}}, Islands{{0}, {1, 4}, {2, 3}}})
    for (const Collective collective : exchanges)
      for (std::uint32_t root = 0; root < 4; ++root) {
        Machine machine(islands, scratch_bytes);
        CollectiveCase c;
        c.collective = collective;
        c.root = root;
        c.count = 70'003;
        EXPECT_TRUE(check(machine, islands, c));
        std::size_t blocks = machine.ranks() - islands[place_of(islands, root).island].size();
        if (collective == Collective::all_to_all) {
          blocks = machine.ranks() * machine.ranks();
          for (const auto& island : islands) blocks -= island.size() * island.size();
        }
        EXPECT_EQ(machine.crossings(), blocks * c.count) << name(collective) << " " << strait::describe(islands);
        EXPECT_EQ(machine.strays(), 0u) << name(collective) << " " << strait::describe(islands);
      }
}

/// Short exchanges are one step among all ranks, because an additional launch would cost more than it saves.
TEST(DeviceIslands, ShortExchangesGoToAllAtOnce) {
  const Machine machine({{0, 1}, {2, 3}}, scratch_bytes);
  for (const Collective collective : exchanges)
    for (const auto& [count, is_carried] : {std::pair(0, false), std::pair(65'535, false), std::pair(65'536, true)}) {
      Call call;
      call.collective = collective;
      call.type = DataType::float32;
      call.count = static_cast<std::size_t>(count);
      EXPECT_EQ(machine.carries(call), is_carried) << name(collective) << " " << count;
    }
}

/// Long blocks within an island stay there, and short ones go with those that cross. Each block is treated by its own
/// length.
TEST(DeviceIslands, BlocksOfDifferentLengths) {
  constexpr std::uint32_t ranks = 5;
  constexpr std::size_t all_bytes = ranks * sizeof(float), border = ((1 << 20) + all_bytes - 1) / all_bytes;
  for (const Islands& islands : {Islands{{0, 3}, {1, 2, 4}}, Islands{{0, 1}, {2}, {3, 4}}})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      const auto length = [seed](std::uint32_t from, std::uint32_t to) {
        const std::size_t lengths[] = {0, 1, 1000, border - 1, border, border + 7, border * 2};
        return lengths[mix(seed * 100 + from * 10 + to) % (seed < 3 ? 4 : std::size(lengths))];
      };
      BlocksOfLengths all(ranks, length);
      Machine machine(islands, 0);
      EXPECT_TRUE(machine.carries(all.calls[0]));
      std::vector<Rank> states(ranks);
      machine.run(states, all.calls);
      EXPECT_EQ(all.outputs, all.expected) << strait::describe(islands) << ", seed " << seed;
      std::size_t strays = 0, crossings = 0;
      for (std::uint32_t from = 0; from < ranks; ++from)
        for (std::uint32_t to = 0; to < ranks; ++to) {
          const bool crosses = place_of(islands, from).island != place_of(islands, to).island;
          const std::size_t count = length(from, to);
          crossings += crosses ? count : 0;
          strays += !crosses && from != to && count < border ? count : 0;
        }
      EXPECT_EQ(machine.crossings(), crossings);
      EXPECT_EQ(machine.strays(), strays);
    }
}

/// A rank's own block does not cause a launch: if the other blocks are short, there are as many launches as without
/// islands.
TEST(DeviceIslands, ARanksOwnBlockGoesInsideIfOthersDo) {
  using Counts = std::vector<std::size_t>;
  const auto counts_of = [](std::size_t from_one_to_zero) {
    const BlocksOfLengths all(4, [=](std::uint32_t from, std::uint32_t to) {
      return from == 1 && to == 0 ? from_one_to_zero : 10 * from + to;
    });
    const auto steps = strait::DeviceIslands(1, {{0, 1}, {2, 3}}, nullptr, 0).steps_of(all.calls[1]);
    std::vector<Counts> counts;
    for (const IslandStep& each : steps) {
      counts.push_back(each.call.send_counts);
      counts.push_back(each.call.receive_counts);
    }
    return counts;
  };
  EXPECT_EQ(counts_of(100), (std::vector<Counts>{{0, 0}, {0, 0}, {100, 11, 12, 13}, {1, 11, 21, 31}}));
  EXPECT_EQ(counts_of(65'536), (std::vector<Counts>{{65'536, 11}, {0, 11}, {0, 0, 12, 13}, {1, 0, 21, 31}}));
}

/// Sums of islands cross in the wire format. Other collectives in a wire format are not done over islands.
TEST(DeviceIslands, RandomCallsInWireFormats) {
  EXPECT_EQ(carry_random_calls(60, of_one_size, random_wire_case), 60);
  EXPECT_EQ(carry_random_calls(60, of_other_sizes, random_wire_case), 40);  // reduce-scatters are among all ranks
  const Machine machine({{0, 1}, {2, 3}}, scratch_bytes);
  Call call;
  call.type = DataType::float32;
  call.count = 1 << 20;
  call.wire = WireFormat::int8;
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
    call.collective = collective;
    EXPECT_FALSE(machine.carries(call)) << name(collective);
  }
}

/// A residual changes the result on all ranks alike, because only one rank of each island quantises an element for
/// crossing, and has that element's residual. Parts begin at a block of the wire format.
TEST(DeviceIslands, OneRankOfAnIslandQuantisesAnElement) {
  Islands long_ones(2);  // islands whose last ranks may get no elements
  for (std::uint32_t rank = 0; rank < 32; ++rank) long_ones[rank / 16].push_back(rank);
  for (const Islands& islands :
       {Islands{{0, 1, 2}, {3, 4, 5}}, Islands{{0, 3}, {1, 2}}, Islands{{0, 1}, {2}}, long_ones})
    for (const std::size_t count : {std::size_t{1}, std::size_t{16'385}, std::size_t{70'001}, std::size_t{98'304}})
      for (const Island& island : islands) {
        std::vector<int> times(count);
        for (const std::uint32_t rank : island) {
          std::vector<float> elements(count), residual(count);
          Call call;
          call.collective = Collective::all_reduce;
          call.type = DataType::float32;
          call.count = count;
          call.send = call.receive = elements.data();
          call.wire = WireFormat::int8;
          call.residual = residual.data();
          for (const IslandStep& step : strait::DeviceIslands(rank, islands, nullptr, scratch_bytes).steps_of(call)) {
            EXPECT_EQ(step.call.wire != WireFormat::off, step.among == IslandStep::Among::across);
            if (const auto& counts = step.call.send_counts; !counts.empty()) {
              EXPECT_EQ(counts.size(), island.size());
              EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), count);
              EXPECT_EQ(step.call.send_offsets.size(), island.size());
            }
            if (step.among != IslandStep::Among::across) continue;
            EXPECT_NE(step.call.count, 0u);
            const std::ptrdiff_t first = static_cast<const float*>(step.call.send) - elements.data();
            EXPECT_EQ(step.call.residual - residual.data(), first);
            EXPECT_EQ(first % static_cast<std::ptrdiff_t>(wire::block_elements), 0);
            for (std::size_t i = 0; i < step.call.count; ++i) ++times.at(static_cast<std::size_t>(first) + i);
          }
        }
        EXPECT_EQ(times, std::vector<int>(count, 1)) << strait::describe(islands);
      }
}

/// The resulting bits must not depend on the size, so islands carry reductions of every size.
TEST(DeviceIslands, ReductionsAreCarriedAtEverySize) {
  for (const Islands& islands : {Islands{{0, 1}, {2, 3}}, Islands{{0, 1}, {2}}}) {
    const Machine machine(islands, scratch_bytes);
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
      for (std::size_t count = 1; count < 4'000'000; count = count * 3 + 1) {
        Call call;
        call.collective = collective;
        call.count = count;
        EXPECT_TRUE(machine.carries(call)) << name(collective) << " " << count;
      }
  }
}

/// In a large all-reduce over islands of k ranks, each rank carries a k-th of the data across.
TEST(DeviceIslands, EachByteCrossesOnceAnIsland) {
  for (const Islands& islands : {Islands{{0, 1}, {2, 3}}, Islands{{0, 1, 2}, {3, 4, 5}}, Islands{{0, 1}, {2}}}) {
    Machine machine(islands, scratch_bytes);
    CollectiveCase c;
    c.count = 48'000;
    EXPECT_TRUE(check(machine, islands, c));
    EXPECT_EQ(machine.crossings(), islands.size() * c.count) << strait::describe(islands);
  }
}

/// This holds for islands of different sizes, too. Each island reads a byte that goes to all ranks once, and
/// contributes one sum to what is reduced.
TEST(DeviceIslands, FirstRanksCrossForTheirIslands) {
  const Islands islands{{0}, {1, 2}, {3, 4}, {5}};
  for (const Collective collective : carried) {
    Machine machine(islands, scratch_bytes);
    CollectiveCase c;
    c.collective = collective;
    const bool has_blocks = collective == Collective::all_gather || collective == Collective::reduce_scatter;
    c.count = has_blocks ? 48'000 : 6 * 48'000;
    EXPECT_TRUE(check(machine, islands, c));
    EXPECT_EQ(machine.crossings(), islands.size() * 6 * 48'000) << name(collective);
  }
}

/// Runs the plan `hierarchical` on the host executor. Calls over islands must have the same bits.
std::vector<Bytes> run_plan(const CollectiveCase& c, const Islands& islands, const std::vector<Bytes>& inputs) {
  const auto count = static_cast<std::uint32_t>(inputs.size());
  PlanRequest request;
  request.collective = c.collective;
  request.ranks = count;
  request.root = c.root;
  request.shape.levels.assign(1, Island(count));
  for (std::uint32_t rank = 0; rank < count; ++rank) request.shape.levels[0][rank] = place_of(islands, rank).island;
  const Algorithm& algorithm = *find_algorithm("hierarchical");
  EXPECT_TRUE(algorithm.supports(request));
  std::vector<Bytes> outputs(count, Bytes(buffer_bytes(c, count).receive));
  slots::Geometry geometry;
  geometry.ranks = count;
  static int number = 0;
  const std::string name = "islands_test_" + std::to_string(++number);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport = loopback::open(name, geometry, rank);
      ASSERT_TRUE(transport);
      HostProgram::Options options;
      options.arithmetic = {c.type, c.op};
      options.count = c.count;
      options.slice_bytes = 4096;
      const auto program = HostProgram::bind(algorithm.build(request, rank), options, **transport);
      ASSERT_TRUE(program) << program.error().message;
      (*program)->start({inputs[rank].data(), outputs[rank].data(), 1, {}});
      const Deadline deadline = Deadline::after_ms(20'000);
      for (auto state = (*program)->progress(); state && *state != HostProgram::State::done && !deadline.expired();
           state = (*program)->progress())
        if (*state == HostProgram::State::idle) std::this_thread::yield();
    });
  threads.clear();
  return outputs;
}

TEST(DeviceIslands, HaveTheBitsOfTheHierarchicalPlan) {
  for (const Islands& islands :
       {Islands{{0, 1}, {2, 3}}, Islands{{0, 3, 5}, {1, 2, 4}}, Islands{{0, 2}, {1, 5}, {3, 4}}})
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
      for (const DataType type : {DataType::bfloat16, DataType::float32, DataType::float8_e5m2, DataType::int32})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::avg}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = type;
          c.op = op;
          c.count = 5003;
          std::vector<Bytes> inputs;
          const std::uint32_t ranks = static_cast<std::uint32_t>(islands.size() * islands[0].size());
          for (std::uint32_t rank = 0; rank < ranks; ++rank) inputs.push_back(random_input(c, ranks, rank));
          const std::vector<Bytes> outputs = run_plan(c, islands, inputs);
          const ReferenceCall reference{collective, type, op, 0, {}, inputs};
          for (std::uint32_t rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(first_difference(island_reference_output(reference, rank, islands), outputs[rank], type, inputs),
                      "")
                << strait::testing::describe(c) << " on rank " << rank << " of " << strait::describe(islands);
        }
}

}  // namespace
}  // namespace strait::testing
