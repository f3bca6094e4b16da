#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "support/reference.hpp"
#include "support/wire_reference.hpp"

/// The results that every collective must give where GPUs form islands (docs/numerics.md), computed by plain loops.
namespace strait::testing {

using Islands = std::vector<std::vector<std::uint32_t>>;  ///< the ranks of each island, in order

namespace detail {
/// Combines contributions in the given order and rounds the results to elements. With `final`, averages divide by
/// `ranks`.
inline Bytes combined(const ReferenceCall& call, const std::vector<const Bytes*>& parts, bool final,
                      std::size_t ranks) {
  std::vector<ReduceSource> sources;
  for (const Bytes* part : parts) sources.push_back({.pointer = part->data()});
  const ReduceDestination destination;
  return reference_step({.type = call.type,
                         .op = call.op,
                         .sources = sources,
                         .destinations = {&destination, 1},
                         .count = parts[0]->size() / size_bytes(call.type),
                         .final = final,
                         .ranks = static_cast<std::uint32_t>(ranks)})[0];
}
}  // namespace detail

/// Returns the sum of each island, added in rank order and rounded to elements.
inline std::vector<Bytes> island_sums(const ReferenceCall& call, const Islands& islands) {
  std::vector<Bytes> contributions(call.inputs.begin(), call.inputs.end());
  if (call.op == ReduceOp::premul_sum)
    for (std::size_t rank = 0; rank < contributions.size(); ++rank)
      contributions[rank] = reference_premultiplied(call.type, call.inputs[rank], call.premul_scalars[rank]);
  std::vector<Bytes> sums;
  for (const auto& island : islands) {
    std::vector<const Bytes*> members;
    for (const std::uint32_t rank : island) members.push_back(&contributions[rank]);
    sums.push_back(detail::combined(call, members, false, call.inputs.size()));
  }
  return sums;
}

/// Returns the reduction of all inputs: first within each island, then of the islands' results.
inline Bytes island_reduction(const ReferenceCall& call, const Islands& islands) {
  const std::vector<Bytes> sums = island_sums(call, islands);
  std::vector<const Bytes*> all;
  for (const Bytes& each : sums) all.push_back(&each);
  return detail::combined(call, all, true, call.inputs.size());
}

/// Returns the contents of `rank`'s receive buffer.
inline Bytes island_reference_output(const ReferenceCall& call, std::uint32_t rank, const Islands& islands) {
  if (!is_reduction(call.collective)) return reference_output(call, rank);
  if (call.collective == Collective::reduce && rank != call.root) return {};
  const Bytes sum = island_reduction(call, islands);
  return call.collective == Collective::reduce_scatter ? detail::block(sum, rank, call.inputs.size()) : sum;
}

/// As island_reference_output(), for a call in a wire format (docs/wire-formats.md): the islands' sums are encoded.
inline Bytes wire_island_reference_output(WireFormat format, const ReferenceCall& call, std::uint32_t rank,
                                          const Islands& islands) {
  const bool alike = std::all_of(islands.begin(), islands.end(),
                                 [&](const auto& island) { return island.size() == islands[0].size(); });
  const bool crosses =
      call.collective == Collective::all_reduce || (call.collective == Collective::reduce_scatter && alike);
  if (islands.empty() || !crosses) return wire_reference_output(format, call, rank);
  const auto ranks = static_cast<std::uint32_t>(call.inputs.size());
  std::vector<std::vector<float>> sums;
  for (const Bytes& sum : island_sums(call, islands))
    sums.push_back(
        to_floats(call.type, call.collective == Collective::all_reduce ? sum : detail::block(sum, rank, ranks)));
  const std::vector<float> all = wire_sum(format, call.op, sums, ranks);
  return to_elements(call.type, call.collective == Collective::all_reduce ? through_wire(format, all) : all);
}

}  // namespace strait::testing
