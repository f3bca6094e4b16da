#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "host/collective_case.hpp"
#include "support/island_reference.hpp"
#include "unit/islands/island_machine.hpp"

/// Calls over islands, random or given, compared with the reference.
namespace strait::testing {

/// Runs the call and checks that every rank's output has the reference's bits and that nothing else was written.
/// Returns false if islands do not carry the call.
inline bool check(Machine& machine, const Islands& islands, const CollectiveCase& c) {
  const std::uint32_t count = machine.ranks();
  const BufferBytes sizes = buffer_bytes(c, count);
  const std::size_t bytes = std::max(sizes.send, sizes.receive) + 2 * guard_bytes;
  const bool inside = c.in_place && sizes.receive > sizes.send;
  std::vector<Bytes> inputs, scalars;
  std::vector<Rank> ranks(count);
  std::vector<Call> calls;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    inputs.push_back(random_input(c, count, rank));
    scalars.push_back(random_scalar(c, rank));
    for (Bytes& memory : ranks[rank].memory) memory.assign(bytes, poison);
    std::byte* const base = ranks[rank].memory[0].data() + guard_bytes;
    ranks[rank].send = base + (inside ? own_offset(c, rank) : 0);
    ranks[rank].receive =
        c.in_place ? base + (inside ? 0 : own_offset(c, rank)) : ranks[rank].memory[1].data() + guard_bytes;
    std::copy(inputs[rank].begin(), inputs[rank].end(), ranks[rank].send);
    calls.push_back(call_of(c, ranks[rank].send, ranks[rank].receive, scalars[rank]));
  }
  if (!machine.carries(calls[0])) return false;
  machine.run(ranks, calls);
  CollectiveCase expected_case = c;
  expected_case.islands = islands;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const Bytes expected = expected_output(expected_case, inputs, scalars, rank);
    EXPECT_EQ(first_difference(expected, {ranks[rank].receive, expected.size()}, c.type, inputs), "")
        << strait::testing::describe(c) << " on rank " << rank << " of " << strait::describe(islands);
    if (!c.in_place) {
      EXPECT_TRUE(std::equal(inputs[rank].begin(), inputs[rank].end(), ranks[rank].send)) << "changed its input";
    }
    std::fill_n(ranks[rank].receive, expected.size(), poison);
    Bytes& written = ranks[rank].memory[c.in_place ? 0 : 1];
    const std::span around(written);
    for (const auto guard : {around.first(guard_bytes), around.last(guard_bytes)})
      EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == poison; }))
          << strait::testing::describe(c);
  }
  return true;
}

/// Returns islands of these sizes, of ranks in random order.
inline Islands shuffled(std::span<const std::uint32_t> sizes, std::uint64_t seed) {
  Island ranks(std::accumulate(sizes.begin(), sizes.end(), 0u));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (std::size_t i = ranks.size(); i-- > 1;) std::swap(ranks[i], ranks[mix(seed * 32 + i) % (i + 1)]);
  Islands islands;
  auto next = ranks.begin();
  for (const std::uint32_t size : sizes) {
    islands.emplace_back(next, next + size);
    next += size;
    std::sort(islands.back().begin(), islands.back().end());
  }
  std::sort(islands.begin(), islands.end());
  return islands;
}

inline constexpr Collective carried[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce,
                                         Collective::all_gather, Collective::broadcast};
/// Collectives whose messages cross islands directly from rank to rank.
inline constexpr Collective exchanges[] = {Collective::all_to_all, Collective::gather, Collective::scatter};
inline constexpr std::size_t scratch_bytes = std::size_t{96} << 10;

inline CollectiveCase random_case(std::uint64_t seed, std::uint32_t ranks) {
  CollectiveCase c;
  c.collective = carried[mix(seed) % std::size(carried)];
  c.type = static_cast<DataType>(mix(seed + 1000) % data_type_count);
  c.op = static_cast<ReduceOp>(mix(seed + 2000) % reduce_op_count);
  c.root = static_cast<std::uint32_t>(mix(seed + 3000) % ranks);
  c.in_place = mix(seed + 4000) % 2 == 0;
  c.seed = seed;
  const bool copies = !is_reduction(c.collective);
  const std::size_t most_bytes = copies ? 3 << 19 : std::array<std::size_t, 3>{100, 70'000, 300'000}[seed % 3];
  c.count = 1 + mix(seed + 5000) % (most_bytes / size_bytes(c.type));
  if (c.collective == Collective::all_gather || c.collective == Collective::reduce_scatter)
    c.count = 1 + c.count / ranks;
  return c;
}

inline CollectiveCase random_wire_case(std::uint64_t seed, std::uint32_t ranks) {
  CollectiveCase c = random_case(seed, ranks);
  c.wire = std::array{WireFormat::int8, WireFormat::fp8, WireFormat::int4}[mix(seed + 6000) % 3];
  c.collective = seed % 3 == 0 ? Collective::reduce_scatter : Collective::all_reduce;
  c.type = std::array{DataType::float32, DataType::bfloat16, DataType::float16}[mix(seed + 7000) % 3];
  c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[mix(seed + 8000) % 3];
  c.count = 1 + mix(seed + 5000) % (c.collective == Collective::all_reduce ? 100'000 : 100'000 / ranks);
  return c;
}

/// Returns an exchange whose length is around the border of those that islands carry.
inline CollectiveCase random_exchange(std::uint64_t seed, std::uint32_t ranks) {
  CollectiveCase c = random_case(seed, ranks);
  c.collective = exchanges[mix(seed) % std::size(exchanges)];
  c.count = 1 + mix(seed + 5000) % ((3 << 19) / size_bytes(c.type) / ranks);
  return c;
}

/// Checks random calls; returns how many of them islands carry.
inline int carry_random_calls(std::uint64_t calls, const std::vector<std::vector<std::uint32_t>>& shapes,
                              CollectiveCase (*make_case)(std::uint64_t, std::uint32_t) = random_case) {
  int number = 0;
  for (std::uint64_t seed = 1; seed <= calls && !::testing::Test::HasFailure(); ++seed) {
    const Islands islands = shuffled(shapes[seed % shapes.size()], seed);
    Machine machine(islands, scratch_bytes);
    number += check(machine, islands, make_case(seed, machine.ranks())) ? 1 : 0;
  }
  return number;
}

inline const std::vector<std::vector<std::uint32_t>> of_one_size{{2, 2}, {2, 2, 2},    {3, 3},
                                                                 {4, 4}, {2, 2, 2, 2}, {5, 5}};
inline const std::vector<std::vector<std::uint32_t>> of_other_sizes{{2, 1}, {1, 2},       {2, 1, 1},
                                                                    {3, 2}, {1, 1, 2, 2}, {4, 1, 2}};

inline const std::vector<std::vector<std::uint32_t>> of_one_rank{{1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1}};

}  // namespace strait::testing
