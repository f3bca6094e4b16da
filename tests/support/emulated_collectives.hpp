#pragma once

// First: it stands for CUDA's headers.
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <thread>
#include <vector>

#include "support/random_data.hpp"
#include "support/reference.hpp"

/// Calls of all ranks of a Machine against the reference.
namespace strait::testing {

inline constexpr std::size_t guard_bytes = 64;
inline constexpr std::byte poison{0xa5};

/// A call of all ranks, bit by bit, and that nothing around its output is written.
inline void check(Machine& machine, const CollectiveCase& c) {
  const std::uint32_t ranks = machine.ranks();
  const BufferBytes sizes = buffer_bytes(c, ranks);
  std::vector<Bytes> inputs, scalars;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(random_elements(c.type, sizes.send / size_bytes(c.type), c.seed * 100 + rank));
    scalars.push_back(random_elements(c.type, 1, c.seed * 100 + 50 + rank));
  }
  const std::size_t bytes = std::max(sizes.send, sizes.receive) + 2 * guard_bytes + 16;
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Bytes first(bytes, poison), second(bytes, poison);
      const bool inside = c.in_place && sizes.receive > sizes.send;
      std::byte* const base = first.data() + guard_bytes + c.misalignment_bytes;
      std::byte* const input = base + (inside ? own_offset(c, rank) : 0);
      std::byte* const output =
          c.in_place ? base + (inside ? 0 : own_offset(c, rank)) : second.data() + guard_bytes + c.misalignment_bytes;
      std::copy(inputs[rank].begin(), inputs[rank].end(), input);
      machine.run(rank, call_of(c, input, output, scalars[rank]));
      const Bytes expected = reference_output({.collective = c.collective,
                                               .type = c.type,
                                               .op = c.op,
                                               .root = c.root,
                                               .premul_scalars = scalars,
                                               .inputs = inputs},
                                              rank);
      EXPECT_EQ(first_difference(expected, {output, expected.size()}, c.type, inputs), "")
          << describe(c) << " on rank " << rank << " of " << ranks;
      Bytes& written = c.in_place ? first : second;
      std::fill_n(output, expected.size(), poison);
      EXPECT_TRUE(std::all_of(written.begin(), written.begin() + guard_bytes, [](std::byte b) { return b == poison; }));
      EXPECT_TRUE(std::all_of(written.end() - guard_bytes, written.end(), [](std::byte b) { return b == poison; }));
    });
}

inline constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                             Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                             Collective::gather,     Collective::scatter};

/// Every collective with all kinds of types, operations, roots, alignments, in place and not.
inline void check_collectives(Machine& machine, std::initializer_list<std::size_t> counts) {
  std::uint64_t seed = 1;
  for (const Collective collective : collectives)
    for (const std::size_t count : counts) {
      CollectiveCase c;
      c.collective = collective;
      c.type = std::array{DataType::bfloat16, DataType::float32, DataType::uint8, DataType::float64}[seed % 4];
      c.op = static_cast<ReduceOp>(seed % reduce_op_count);
      c.count = count;
      c.in_place = seed % 3 == 0;
      c.misalignment_bytes = seed % 5 == 0 ? size_bytes(c.type) : 0;
      c.root = static_cast<std::uint32_t>(seed % machine.ranks());
      c.seed = ++seed;
      check(machine, c);
      if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace strait::testing
