// Calls over islands through the kernels, on the CPU: each rank's launches on its three rings, one after another in one
// stream. Also with CPU threads that add up what crosses islands.
#include "support/emulated_islands.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "host/collective_case.hpp"
#include "support/blocks_of_lengths.hpp"
#include "support/calls.hpp"
#include "support/island_reference.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using kernels::Mailbox;
using Machine = EmulatedIslands;

void check(Machine& machine, const Islands& islands, const CollectiveCase& c) {
  const std::uint32_t ranks = machine.ranks();
  const BufferBytes sizes = buffer_bytes(c, ranks);
  std::vector<Bytes> inputs, scalars;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(random_input(c, ranks, rank));
    scalars.push_back(random_scalar(c, rank));
  }
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Bytes first(std::max(sizes.send, sizes.receive)), second(sizes.receive);
      const bool inside = c.in_place && sizes.receive > sizes.send;
      std::byte* const input = first.data() + (inside ? own_offset(c, rank) : 0);
      std::byte* const output = c.in_place ? first.data() + (inside ? 0 : own_offset(c, rank)) : second.data();
      std::copy(inputs[rank].begin(), inputs[rank].end(), input);
      machine.run(rank, call_of(c, input, output, scalars[rank]));
      const Bytes expected =
          island_reference_output({c.collective, c.type, c.op, c.root, scalars, inputs}, rank, islands);
      EXPECT_EQ(first_difference(expected, {output, expected.size()}, c.type, inputs), "")
          << strait::testing::describe(c) << " on rank " << rank << " of " << strait::describe(islands);
    });
}

/// Packets, bulk, and both alternately. From 64 KB on, each rank carries a share across.
TEST(IslandKernels, CarriedCalls) {
  std::uint64_t seed = 1;
  for (const Islands& islands : {Islands{{0, 1}, {2, 3}}, Islands{{0, 3}, {1, 2}}, Islands{{0, 2}, {1}}}) {
    for (const std::size_t flagged_bytes : {std::size_t{0}, std::size_t{2048}, std::size_t{1} << 20}) {
      Machine machine(islands, {.flagged_bytes = flagged_bytes});
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
        for (const std::size_t count : {3, 1501, 20'011}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = std::array{DataType::float32, DataType::bfloat16, DataType::float64, DataType::int8}[seed % 4];
          c.op = static_cast<ReduceOp>(seed % reduce_op_count);
          c.count = count;
          c.in_place = seed % 3 == 0;
          c.root = static_cast<std::uint32_t>(seed % machine.ranks());
          c.seed = ++seed;
          check(machine, islands, c);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(IslandKernels, CopiesOfAMegabyte) {
  for (const Islands& islands : {Islands{{0, 2}, {1, 3}}, Islands{{0}, {1, 3}, {2}}, Islands{{0}, {1, 2}}}) {
    Machine machine(islands, {.flagged_bytes = 4096});
    CollectiveCase c;
    c.type = DataType::float32;
    for (const bool in_place : {false, true}) {
      c.in_place = in_place;
      c.collective = Collective::all_gather;
      c.count = 90'003;
      check(machine, islands, c);
      c.collective = Collective::broadcast;
      c.count = 270'007;
      c.root = machine.ranks() - 1;
      check(machine, islands, c);
    }
  }
}

/// First what stays within islands, then what crosses: in bulk and in packets, with ranks that are alone in their
/// island or have no part in a step.
TEST(IslandKernels, ExchangesOfAMegabyte) {
  std::uint64_t seed = 1;
  for (const auto& [islands, flagged_bytes] :
       {std::pair(Islands{{0, 2}, {1, 3}}, std::size_t{1} << 20), std::pair(Islands{{0}, {1, 3}, {2}}, std::size_t{0}),
        std::pair(Islands{{0, 1, 4}, {2, 3}}, std::size_t{4096})}) {
    Machine machine(islands, {.flagged_bytes = flagged_bytes});
    for (const auto& [collective, root] :
         {std::pair(Collective::all_to_all, 0u), std::pair(Collective::gather, 0u), std::pair(Collective::gather, 3u),
          std::pair(Collective::scatter, 0u), std::pair(Collective::scatter, 3u)}) {
      CollectiveCase c;
      c.collective = collective;
      c.type = std::array{DataType::float32, DataType::bfloat16, DataType::int8}[seed % 3];
      c.count = ((std::size_t{1} << 20) / machine.ranks() + 77) / size_bytes(c.type);
      c.root = root;
      c.in_place = seed % 2 == 0;
      c.seed = ++seed;
      check(machine, islands, c);
      if (HasFailure()) return;
    }
  }
}

TEST(IslandKernels, BlocksOfDifferentLengths) {
  constexpr std::size_t border = (std::size_t{1} << 20) / 4 / sizeof(float);
  for (const Islands& islands : {Islands{{0, 2}, {1, 3}}, Islands{{0}, {1, 2, 3}}})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      BlocksOfLengths all(4, [seed](std::uint32_t from, std::uint32_t to) {
        return std::array<std::size_t, 5>{0, 1, 5003, border, border + 7}[mix(seed * 100 + from * 10 + to) % 5];
      });
      Machine machine(islands, {.flagged_bytes = 8192});
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < 4; ++rank)
        threads.emplace_back([&, rank] { machine.run(rank, all.calls[rank]); });
      threads.clear();
      EXPECT_EQ(all.outputs, all.expected) << strait::describe(islands) << ", seed " << seed;
    }
}

/// The bits are the same as with kernels. If islands have equal sizes, each place has its own CPU threads; otherwise
/// only the first ranks have.
TEST(IslandKernels, CpuThreadsAddUpWhatCrosses) {
  std::uint64_t seed = 1;
  for (const Islands& islands :
       {Islands{{0, 3}, {1, 2}}, Islands{{0, 1}, {2, 3}, {4, 5}}, Islands{{0}, {1, 2}, {3, 4}, {5}}}) {
    Machine machine(islands, {.by_cpus = true});
    for (const std::size_t count : {3, 40'011})
      for (int op = 0; op < reduce_op_count; op += count == 3 ? 3 : 1) {
        CollectiveCase c;
        c.collective = Collective::all_reduce;
        c.type = std::array{DataType::float32, DataType::bfloat16, DataType::float64, DataType::int8}[seed % 4];
        c.op = static_cast<ReduceOp>(op);
        c.count = count;
        c.in_place = seed % 3 == 0;
        c.seed = ++seed;
        check(machine, islands, c);
        if (HasFailure()) return;
      }
  }
}

/// Rank 1 is missing. What rank 0 has of its island is then not a sum, and rank 2 must not take it for one.
class IslandsThatGiveUp : public ::testing::TestWithParam<bool> {};
TEST_P(IslandsThatGiveUp, LetNothingCross) {
  constexpr std::uint64_t soon = 100'000'000, later = 1'000'000'000;
  const bool by_cpus = GetParam();
  Machine machine({{0, 1}, {2, 3}},
                  {.lanes = 1, .flagged_bytes = 4096, .timeout_ns = {soon, soon, later, later}, .by_cpus = by_cpus});
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0u, 2u, 3u})
    threads.emplace_back([&, rank] {
      Bytes input(400, std::byte{1}), output(400, std::byte{0xa5});
      CollectiveCase c;
      c.type = DataType::uint8;
      c.count = 400;
      machine.run(rank, call_of(c, input.data(), output.data(), Bytes(1)));
      EXPECT_EQ(machine.mailbox(rank).event, Mailbox::Event::timeout) << "rank " << rank;
      // Ranks 2 and 3 have their island's sum, 2, and nothing else.
      EXPECT_EQ(output, Bytes(400, rank == 0 ? std::byte{0xa5} : std::byte{2})) << "rank " << rank;
    });
  threads.clear();
  EXPECT_EQ(machine.mailbox(0).peer, 1u);
  if (by_cpus) return;  // then the CPU threads know which rank all wait for
  EXPECT_EQ(machine.mailbox(2).peer, 0u) << "by its number in the communicator";
  EXPECT_EQ(machine.mailbox(3).peer, 1u);
}
/// Rank 3 is missing: rank 2 waits for it and names it. The other island has exchanged its own blocks.
TEST(IslandKernels, ExchangesThatGiveUpNameWhomTheyWaitFor) {
  constexpr std::uint64_t soon = 100'000'000, later = 2'000'000'000;
  constexpr std::size_t block = std::size_t{1} << 18;
  Machine machine({{0, 1}, {2, 3}}, {.lanes = 1, .timeout_ns = {later, later, soon, soon}});
  std::vector<Bytes> outputs(4, Bytes(4 * block, std::byte{0xa5}));
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0u, 1u, 2u})
    threads.emplace_back([&, rank] {
      Bytes input(4 * block, static_cast<std::byte>(rank));
      CollectiveCase c;
      c.collective = Collective::all_to_all;
      c.type = DataType::uint8;
      c.count = block;
      machine.run(rank, call_of(c, input.data(), outputs[rank].data(), Bytes(1)));
    });
  threads.clear();
  for (const std::uint32_t rank : {0u, 1u, 2u})
    EXPECT_EQ(machine.mailbox(rank).event, Mailbox::Event::timeout) << "rank " << rank;
  EXPECT_EQ(machine.mailbox(2).peer, 3u) << "by its number in the communicator";
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_GE(machine.mailbox(rank).peer, 2u);
    for (const std::uint32_t from : {0u, 1u})
      EXPECT_TRUE(std::all_of(outputs[rank].begin() + static_cast<std::ptrdiff_t>(from * block),
                              outputs[rank].begin() + static_cast<std::ptrdiff_t>((from + 1) * block),
                              [from](std::byte b) { return b == static_cast<std::byte>(from); }))
          << "from " << from << " to " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Sums, IslandsThatGiveUp, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "ByCpuThreads" : "ByKernels"; });

}  // namespace
}  // namespace strait::testing
