#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <thread>
#include <vector>

#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/emulated_machine.hpp"
#include "support/random_data.hpp"
#include "support/reference.hpp"

/// Runs calls of all ranks of a Machine and compares the results with the reference.
namespace strait::testing {

/// A case, the inputs of all ranks, and the outputs that the reference computes from them.
struct CheckedCase {
  CheckedCase(const CollectiveCase& the_case, std::uint32_t ranks) : c(the_case), sizes(buffer_bytes(c, ranks)) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      inputs.push_back(random_elements(c.type, sizes.send / size_bytes(c.type), c.seed * 100 + rank));
      scalars.push_back(random_elements(c.type, 1, c.seed * 100 + 50 + rank));
    }
  }
  Bytes expected(std::uint32_t rank) const {
    return reference_output({.collective = c.collective,
                             .type = c.type,
                             .op = c.op,
                             .root = c.root,
                             .premul_scalars = scalars,
                             .inputs = inputs},
                            rank);
  }
  CollectiveCase c;
  BufferBytes sizes;
  std::vector<Bytes> inputs, scalars;
};

/// One rank's buffers of a case. `of` must outlive it.
class CheckedCall {
 public:
  CheckedCall(const CheckedCase& of, std::uint32_t rank)
      : of_(of),
        rank_(rank),
        first_(std::max(of.sizes.send, of.sizes.receive) + 2 * guard_bytes + 16, poison),
        second_(first_) {
    const CollectiveCase& c = of.c;
    const bool inside = c.in_place && of.sizes.receive > of.sizes.send;
    std::byte* const base = first_.data() + guard_bytes + c.misalignment_bytes;
    std::byte* const input = base + (inside ? own_offset(c, rank) : 0);
    output_ =
        c.in_place ? base + (inside ? 0 : own_offset(c, rank)) : second_.data() + guard_bytes + c.misalignment_bytes;
    std::copy(of.inputs[rank].begin(), of.inputs[rank].end(), input);
    call_ = call_of(c, input, output_, of.scalars[rank]);
  }
  CheckedCall(const CheckedCall&) = delete;
  CheckedCall& operator=(const CheckedCall&) = delete;
  const Call& call() const { return call_; }
  /// Returns whether nothing has been written to the output yet; only for calls out of place.
  bool is_untouched() const {
    return std::all_of(second_.begin(), second_.end(), [](std::byte b) { return b == poison; });
  }
  /// Compares the result bit by bit, and checks that nothing around it was written. Overwrites the result.
  void verify() {
    const Bytes expected = of_.expected(rank_);
    EXPECT_EQ(first_difference(expected, {output_, expected.size()}, of_.c.type, of_.inputs), "")
        << describe(of_.c) << " on rank " << rank_ << " of " << of_.inputs.size();
    Bytes& written = of_.c.in_place ? first_ : second_;
    std::fill_n(output_, expected.size(), poison);
    EXPECT_TRUE(std::all_of(written.begin(), written.begin() + guard_bytes, [](std::byte b) { return b == poison; }));
    EXPECT_TRUE(std::all_of(written.end() - guard_bytes, written.end(), [](std::byte b) { return b == poison; }));
  }

 private:
  const CheckedCase& of_;
  std::uint32_t rank_;
  Bytes first_, second_;
  std::byte* output_ = nullptr;
  Call call_;
};

/// Runs a call on all ranks, one thread each, and verifies every rank's result.
inline void check(Machine& machine, const CollectiveCase& c) {
  const CheckedCase of(c, machine.ranks());
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < machine.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      CheckedCall checked(of, rank);
      machine.run(rank, checked.call());
      checked.verify();
    });
}

inline constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                             Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                             Collective::gather,     Collective::scatter};

/// Checks every collective with a mix of types, operations, roots and alignments, in place and out of place.
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
