// Checks the launches of all ranks of random machines (launches_fit.hpp): of groups that share a launch, and of
// islands.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "launches/device_aggregates.hpp"
#include "launches/device_islands.hpp"
#include "launches_fit.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

using kernels::AggregatedCall;

/// Checks that the call fits, and returns what must be the same on its peers.
auto checked(const RandomMachine& machine, const AggregateLaunch& launch, const AggregatedCall& call) {
  const kernels::ProtocolSlots& slots = machine.ring.slots[static_cast<std::size_t>(launch.protocol)];
  EXPECT_LE(std::uint32_t{call.first_lane} + call.blocks * call.width, slots.lanes);
  EXPECT_LE(std::uint32_t{call.first_block} + call.blocks, launch.blocks);
  EXPECT_GE(std::uint32_t{call.blocks} * call.width, call.lanes);
  EXPECT_TRUE(call.width >= 1 && call.width <= kernels::max_width);
  EXPECT_TRUE(call.width == 1 || launch.protocol == Protocol::bulk);
  EXPECT_GE(launch.threads, machine.ranks * call.width);
  EXPECT_LE(launch.threads, kernels::max_threads);
  EXPECT_TRUE(call.chunk_bytes != 0 &&
              call.chunk_bytes <= slots.slot_bytes / kernels::piece_bytes * kernels::piece_data_bytes(launch.protocol));
  EXPECT_GE(std::size_t{call.pieces} * kernels::piece_data_bytes(launch.protocol),
            std::min(call.bytes, call.chunk_bytes));
  EXPECT_GE(std::size_t{call.rounds} * call.lanes * call.chunk_bytes, call.bytes);
  for (std::uint32_t block = 0; block < call.blocks; ++block) {
    const std::size_t number = launch.argument.call_index_of_block[call.first_block + block];
    EXPECT_TRUE(number < launch.argument.count && &launch.argument.calls[number] == &call);
  }
  return std::tuple(launch.protocol, call.bytes, call.whole_bytes, call.chunk_bytes, call.lanes, call.call_hash,
                    call.first_lane, call.cast, call.rounds);
}

TEST(Aggregates, FitAndAreAlike) {
  std::size_t together = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    const RandomMachine machine(random);
    const auto of_call = static_cast<std::uint32_t>(random() % 4 == 0 ? random() % 200 + 1 : 0);
    std::vector<Call> group(random() % 40 + 1);
    const std::size_t largest = random_bytes(random);
    for (Call& call : group) {
      call.collective = one_of(random, {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce});
      if (seed % 2 == 0) call.collective = one_of(random, {Collective::all_gather, Collective::broadcast});
      call.type = DataType::float32;
      call.root = static_cast<std::uint32_t>(random() % machine.ranks);
      call.count = std::min<std::size_t>(largest, mb >> random() % 16) / 4 + random() % 3;
      call.max_sms = of_call;
    }
    using What = decltype(checked(machine, {}, {}));
    std::vector<std::vector<What>> all(machine.ranks);
    for (std::uint32_t rank = 0; rank < machine.ranks; ++rank) {
      const bool overlap = random() % 4 == 0;
      for (std::size_t i = 0; i < group.size(); ++i) {
        group[i].send = group[i].receive = reinterpret_cast<std::byte*>((overlap ? 1 : i + 1) << 40);
      }
      const DeviceCalls calls = machine.calls(rank);
      const std::size_t count = aggregated_calls(calls, group);
      if (count == 1) break;  // on all ranks
      together += count;
      for (const AggregateLaunch& launch : launches_of_aggregate(calls, std::span(group).first(count))) {
        EXPECT_LE(launch.blocks, most_blocks(machine, of_call, seed % 2 != 0));
        for (std::uint32_t i = 0; i < launch.argument.count; ++i)
          all[rank].push_back(checked(machine, launch, launch.argument.calls[i]));
      }
      EXPECT_EQ(all[rank].size(), count);
    }
    for (const auto& each : all) EXPECT_EQ(each, all.front());
    if (HasFailure()) FAIL() << "seed " << seed << ": " << machine.text();
  }
  EXPECT_GT(together, 100'000u);
}

std::vector<Island> random_islands(Random& random, std::uint32_t ranks) {
  std::vector<Island> islands(random() % (ranks - 1) + 2);
  const bool alike = random() % 2 == 0 && ranks % islands.size() == 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    islands[alike || rank < islands.size() ? rank % islands.size() : random() % islands.size()].push_back(rank);
  return islands;
}

/// The rings that ranks use: with all ranks, within their island, and across islands.
struct Rings {
  Rings(Random& random, std::vector<Island> of_islands, std::uint32_t ranks)
      : islands(std::move(of_islands)), all(random, ArenaKind::host, ranks), across(all) {
    const auto kind = one_of(random, {ArenaKind::nvlink, ArenaKind::pcie});
    across = RandomMachine(random, ArenaKind::host, static_cast<std::uint32_t>(islands.size()));
    for (const Island& island : islands) {
      Random same(7);
      machines.emplace_back(same, kind, static_cast<std::uint32_t>(island.size()));
    }
    across.options = all.options;
    for (RandomMachine& each : machines) {
      each.options = all.options;
      each.ring.has_async_copies = kind == ArenaKind::nvlink;
    }
  }
  std::vector<Island> islands;
  RandomMachine all, across;
  std::vector<RandomMachine> machines;  ///< by island
};

TEST(Islands, StepsFitAndAreAlike) {
  std::size_t piped = 0;
  for (std::uint64_t seed = 0; seed < 1'500; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::uint32_t>(random() % 14 + 3);
    const Rings rings(random, random_islands(random, ranks), ranks);
    Call call;
    call.collective = one_of(
        random, {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                 Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter});
    call.type = one_of(random, {DataType::float32, DataType::uint8, DataType::bfloat16});
    call.op = ReduceOp::sum;
    call.root = static_cast<std::uint32_t>(random() % ranks);
    call.count = std::min<std::size_t>(random_bytes(random), 48 * mb) / size_bytes(call.type);
    std::map<std::pair<IslandStep::Among, std::uint32_t>, Alike> alike;  ///< by island, or by place in the islands
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto [island, place] = place_of(rings.islands, rank);
      auto* const scratch = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 45);
      const DeviceIslands islands(rank, rings.islands, scratch, DeviceIslands::scratch_bytes);
      call.send = random_buffer(random, call.type);
      call.receive = random_buffer(random, call.type);
      if (!islands.carries(call)) break;
      for (const IslandStep& step : islands.steps_of(call)) {
        const bool is_inside = step.among == IslandStep::Among::island,
                   is_across = step.among == IslandStep::Among::across;
        const RandomMachine& machine = is_inside ? rings.machines[island] : is_across ? rings.across : rings.all;
        const std::uint32_t number = is_inside ? place : is_across ? island : rank;
        const auto launches = machine.calls(number).launches_of(step.call);
        const Fits fits(machine, most_blocks(machine, 0, is_reduction(step.call.collective)));
        for (const DeviceLaunch& launch : launches) fits.check(launch);
        for (const DeviceLaunch& launch : launches) piped += launch.piped ? 1 : 0;
        const std::uint32_t group = is_inside ? island : is_across ? place : 0;
        alike.try_emplace({step.among, group}, machine.ranks).first->second.add(number, launches);
      }
    }
    for (auto& [among, each] : alike) each.check();
    if (HasFailure())
      FAIL() << "seed " << seed << ": " << name(call.collective) << " of " << call.count << " " << name(call.type)
             << "; " << rings.all.text() << ", " << rings.islands.size() << " islands";
  }
  EXPECT_GT(piped, 500u);
}

}  // namespace
}  // namespace strait::testing
