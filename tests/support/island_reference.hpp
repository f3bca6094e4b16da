#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/reference.hpp"

/// What every collective must give where GPUs form islands (docs/numerics.md), by plain loops.
namespace strait::testing {

using Islands = std::vector<std::vector<std::uint32_t>>;  ///< the ranks of each, in order

/// The reduction of all inputs: of each island in rank order, rounded to elements; then of the islands.
inline Bytes island_reduction(const ReferenceCall& call, const Islands& islands) {
  std::vector<Bytes> contributions(call.inputs.begin(), call.inputs.end());
  if (call.op == ReduceOp::premul_sum)
    for (std::size_t rank = 0; rank < contributions.size(); ++rank)
      contributions[rank] = reference_premultiplied(call.type, call.inputs[rank], call.premul_scalars[rank]);
  const auto sum = [&](const std::vector<const Bytes*>& parts, bool final) {
    std::vector<ReduceSource> sources;
    for (const Bytes* part : parts) sources.push_back({.pointer = part->data()});
    const ReduceDestination destination;
    return reference_step({.type = call.type,
                           .op = call.op,
                           .sources = sources,
                           .destinations = {&destination, 1},
                           .count = call.inputs[0].size() / size_bytes(call.type),
                           .final = final,
                           .ranks = static_cast<std::uint32_t>(call.inputs.size())})[0];
  };
  std::vector<Bytes> partial;
  for (const auto& island : islands) {
    std::vector<const Bytes*> members;
    for (const std::uint32_t rank : island) members.push_back(&contributions[rank]);
    partial.push_back(sum(members, false));
  }
  std::vector<const Bytes*> all;
  for (const Bytes& each : partial) all.push_back(&each);
  return sum(all, true);
}

/// `rank`'s receive buffer.
inline Bytes island_reference_output(const ReferenceCall& call, std::uint32_t rank, const Islands& islands) {
  if (!is_reduction(call.collective)) return reference_output(call, rank);
  if (call.collective == Collective::reduce && rank != call.root) return {};
  const Bytes sum = island_reduction(call, islands);
  return call.collective == Collective::reduce_scatter ? detail::block(sum, rank, call.inputs.size()) : sum;
}

}  // namespace strait::testing
