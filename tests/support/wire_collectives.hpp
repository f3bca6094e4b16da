#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <vector>

#include "executor/host/quantize.hpp"
#include "support/calls.hpp"
#include "support/wire_reference.hpp"

/// Compares calls in wire formats with the reference. A Machine has ranks(), averaged() (the number that averages
/// divide by), and run_all(calls), which makes one call on each rank.
namespace strait::testing {

inline constexpr WireFormat wire_formats[] = {WireFormat::int8, WireFormat::fp8, WireFormat::int4};
inline constexpr DataType wire_types[] = {DataType::float32, DataType::bfloat16, DataType::float16};
inline constexpr Collective wire_collectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                                  Collective::all_gather, Collective::all_to_all};

template <class Machine>
void check_wire(Machine& machine, const CollectiveCase& c) {
  const std::uint32_t ranks = machine.ranks();
  const BufferBytes sizes = buffer_bytes(c, ranks);
  const std::size_t bytes = std::max(sizes.send, sizes.receive) + 2 * guard_bytes + c.misalignment_bytes;
  std::vector<Bytes> inputs, scalars, first(ranks, Bytes(bytes, poison)), second(ranks, Bytes(bytes, poison));
  std::vector<Call> calls;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(random_input(c, ranks, rank));
    scalars.push_back(random_scalar(c, rank));
    const bool inside = c.in_place && sizes.receive > sizes.send;
    std::byte* const base = first[rank].data() + guard_bytes + c.misalignment_bytes;
    std::byte* const input = base + (inside ? own_offset(c, rank) : 0);
    std::byte* const output = c.in_place ? base + (inside ? 0 : own_offset(c, rank))
                                         : second[rank].data() + guard_bytes + c.misalignment_bytes;
    std::copy(inputs[rank].begin(), inputs[rank].end(), input);
    calls.push_back(call_of(c, input, output, scalars[rank]));
  }
  machine.run_all(calls);
  const ReferenceCall reference{c.collective, c.type, c.op, c.root, scalars, inputs};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Bytes expected = wire_reference_output(c.wire, reference, rank, machine.averaged());
    auto* const output = static_cast<std::byte*>(calls[rank].receive);
    EXPECT_EQ(first_difference(expected, {output, expected.size()}, c.type), "")
        << describe(c) << " on rank " << rank << " of " << ranks;
    Bytes& written = c.in_place ? first[rank] : second[rank];
    std::fill_n(output, expected.size(), poison);
    EXPECT_TRUE(std::all_of(written.begin(), written.begin() + guard_bytes, [](std::byte b) { return b == poison; }));
    EXPECT_TRUE(std::all_of(written.end() - guard_bytes, written.end(), [](std::byte b) { return b == poison; }));
    if (!c.in_place) {
      EXPECT_TRUE(std::equal(inputs[rank].begin(), inputs[rank].end(), static_cast<const std::byte*>(calls[rank].send)))
          << describe(c) << " changed its input";
    }
  }
}

/// Checks every collective in every format and type, with a mix of operations and alignments, in place and out of
/// place.
template <class Machine>
void check_wire_collectives(Machine& machine, std::initializer_list<std::size_t> counts, std::uint32_t max_sms = 0) {
  std::uint64_t seed = 1;
  for (const WireFormat wire : wire_formats)
    for (const DataType type : wire_types)
      for (const Collective collective : wire_collectives) {
        CollectiveCase c;
        c.collective = collective;
        c.type = type;
        c.wire = wire;
        c.count = counts.begin()[seed % counts.size()];
        c.in_place = seed / 3 % 2 == 0;
        c.misalignment_bytes = std::array<std::size_t, 3>{0, size_bytes(type), 1}[seed % 3];
        c.max_sms = max_sms;
        if (is_reduction(collective))
          c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[seed / 2 % 3];
        c.seed = ++seed;
        check_wire(machine, c);
        if (::testing::Test::HasFailure()) return;
      }
}

/// Checks that every element's residual is read and written at its own index on every path; the host's encoder gives
/// the expected residuals.
template <class Machine>
void check_residuals(Machine& machine, std::size_t count) {
  const std::uint32_t ranks = machine.ranks();
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    CollectiveCase c;
    c.collective = collective;
    c.count = count;
    c.wire = WireFormat::int8;
    const std::size_t elements = buffer_bytes(c, ranks).send / sizeof(float), run = c.count;
    std::vector<Bytes> inputs;
    std::vector<std::vector<float>> outputs(ranks, std::vector<float>(run)), residuals, expected;
    std::vector<Call> calls;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      inputs.push_back(random_input(c, ranks, rank));
      residuals.emplace_back(elements);
      for (std::size_t i = 0; i < elements; ++i)
        residuals[rank][i] = static_cast<float>(static_cast<std::int32_t>(mix(i + rank))) * 0x1p-26F;
    }
    expected = residuals;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      Bytes encoded(encoded_bytes(c.wire, wire::blocks_of(run)));
      for (std::size_t first = 0; first < elements; first += run)
        encode({c.wire, encoded.data(), wire::blocks_of(run)}, c.type, inputs[rank].data() + first * sizeof(float), run,
               expected[rank].data() + first);
      calls.push_back(
          call_of(c, inputs[rank].data(), reinterpret_cast<std::byte*>(outputs[rank].data()), Bytes(sizeof(float))));
      calls.back().residual = residuals[rank].data();
    }
    machine.run_all(calls);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(
          first_difference(std::as_bytes(std::span(expected[rank])), std::as_bytes(std::span(residuals[rank])), c.type),
          "")
          << name(collective) << ", rank " << rank;
  }
}

}  // namespace strait::testing
