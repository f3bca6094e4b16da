#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "support/random_data.hpp"
#include "support/reference_step.hpp"

/// The results that every collective must give, computed from the inputs of all ranks by plain loops: reductions in
/// rank order with base/reduce_spec.hpp, everything else by copying.
namespace strait::testing {

/// One call of a collective, seen from all ranks at once. `inputs[r]` is rank r's send buffer; broadcast and scatter
/// read only the root's.
struct ReferenceCall {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  std::span<const Bytes> premul_scalars = {};  ///< by rank, one element each, for premul_sum
  std::span<const Bytes> inputs = {};
};

namespace detail {
inline Bytes block(const Bytes& bytes, std::uint32_t index, std::size_t blocks) {
  const std::size_t size_bytes = bytes.size() / blocks;
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(index * size_bytes);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(size_bytes));
}

inline void append(Bytes& bytes, const Bytes& more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
}  // namespace detail

/// Returns every element times the scalar, which is what a rank contributes to a premul_sum.
inline Bytes reference_premultiplied(DataType type, const Bytes& input, const Bytes& scalar) {
  Bytes products = input;
  spec::visit(type, [&]<DataType t>() {
    using Element = spec::ElementType<t>;
    const auto factor = detail::element_at<Element>(scalar.data(), 0);
    for (std::size_t i = 0; i < input.size() / sizeof(Element); ++i) {
      const Element product = spec::premultiplied<t>(detail::element_at<Element>(input.data(), i), factor);
      std::memcpy(products.data() + i * sizeof(Element), &product, sizeof(Element));
    }
  });
  return products;
}

/// Returns the reduction of all inputs in rank order, which is what all_reduce gives every rank.
inline Bytes reference_reduction(const ReferenceCall& call) {
  std::vector<Bytes> contributions(call.inputs.begin(), call.inputs.end());
  if (call.op == ReduceOp::premul_sum)
    for (std::size_t rank = 0; rank < contributions.size(); ++rank)
      contributions[rank] = reference_premultiplied(call.type, call.inputs[rank], call.premul_scalars[rank]);
  std::vector<ReduceSource> sources;
  for (const Bytes& contribution : contributions) sources.push_back({.pointer = contribution.data()});
  const ReduceDestination destination;
  return reference_step({.type = call.type,
                         .op = call.op,
                         .sources = sources,
                         .destinations = {&destination, 1},
                         .count = call.inputs[0].size() / size_bytes(call.type),
                         .final = true,
                         .ranks = static_cast<std::uint32_t>(call.inputs.size())})[0];
}

/// Returns `rank`'s receive buffer after the call; empty if the collective writes none on this rank. all_to_all_v and
/// send_recv have their own counts: see reference_all_to_all_v().
inline Bytes reference_output(const ReferenceCall& call, std::uint32_t rank) {
  const std::size_t ranks = call.inputs.size();
  const bool is_root = rank == call.root;
  Bytes output;
  switch (call.collective) {
    case Collective::all_reduce:
      return reference_reduction(call);
    case Collective::reduce:
      return is_root ? reference_reduction(call) : Bytes();
    case Collective::reduce_scatter:
      return detail::block(reference_reduction(call), rank, ranks);
    case Collective::broadcast:
      return call.inputs[call.root];
    case Collective::scatter:
      return detail::block(call.inputs[call.root], rank, ranks);
    case Collective::gather:
      if (!is_root) return output;
      [[fallthrough]];
    case Collective::all_gather:
      for (const Bytes& input : call.inputs) detail::append(output, input);
      return output;
    case Collective::all_to_all:
      for (const Bytes& input : call.inputs) detail::append(output, detail::block(input, rank, ranks));
      return output;
    case Collective::all_to_all_v:
    case Collective::send_recv:
    case Collective::barrier:
      break;
  }
  return output;
}

/// Returns `rank`'s receive buffer of an all-to-all-v whose blocks are packed in rank order on both sides: counts[s][d]
/// elements go from rank s to rank d.
inline Bytes reference_all_to_all_v(std::span<const Bytes> inputs, std::span<const std::vector<std::size_t>> counts,
                                    DataType type, std::uint32_t rank) {
  Bytes output;
  for (std::size_t sender = 0; sender < inputs.size(); ++sender) {
    std::size_t first = 0;
    for (std::uint32_t d = 0; d < rank; ++d) first += counts[sender][d];
    const auto begin = inputs[sender].begin() + static_cast<std::ptrdiff_t>(first * size_bytes(type));
    output.insert(output.end(), begin, begin + static_cast<std::ptrdiff_t>(counts[sender][rank] * size_bytes(type)));
  }
  return output;
}

/// Returns the bits of one element as a hexadecimal number.
inline std::string bits_text(std::span<const std::byte> bytes, std::size_t index, DataType type) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * size_bytes(type), size_bytes(type));
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof(text), "0x%0*llx", static_cast<int>(2 * size_bytes(type)),
                static_cast<unsigned long long>(bits));
  return text;
}

/// Returns an empty string if the bits are equal; otherwise where they first differ, and what the inputs were there, as
/// far as inputs have that index. For EXPECT_EQ(first_difference(...), "").
inline std::string first_difference(std::span<const std::byte> expected, std::span<const std::byte> got, DataType type,
                                    std::span<const Bytes> inputs = {}) {
  if (expected.size() != got.size())
    return "expected " + std::to_string(expected.size()) + " bytes, got " + std::to_string(got.size());
  if (std::equal(expected.begin(), expected.end(), got.begin())) return "";
  const std::size_t count = expected.size() / size_bytes(type);
  const auto differs = [&](std::size_t i) {
    return std::memcmp(expected.data() + i * size_bytes(type), got.data() + i * size_bytes(type), size_bytes(type)) !=
           0;
  };
  std::size_t first = count, differences = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!differs(i)) continue;
    if (differences++ == 0) first = i;
  }
  std::string text = std::string(name(type)) + " [" + std::to_string(first) + "] of " + std::to_string(count) +
                     ": expected " + bits_text(expected, first, type) + ", got " + bits_text(got, first, type) + "; " +
                     std::to_string(differences) + " elements differ";
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    if (inputs[rank].size() < (first + 1) * size_bytes(type)) continue;
    text += (rank == 0 ? "; inputs " : " ") + bits_text(inputs[rank], first, type);
  }
  return text;
}

}  // namespace strait::testing
