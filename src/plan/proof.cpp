#include "plan/proof.hpp"

#include <algorithm>

#include "plan/proof/proof_state.hpp"

namespace strait {
namespace {

using proof::Expressions;
using proof::Operation;
using proof::ProofState;
using proof::wrong;

std::string place(const Operation& operation, std::uint32_t rank, std::uint32_t chunk, std::uint32_t slice) {
  return std::string(name(operation.of(rank).collective)) + " '" + operation.of(rank).algorithm + "', rank " +
         std::to_string(rank) + ", output[" + std::to_string(chunk) + "] slice " + std::to_string(slice);
}

/// Checks the value of one output slice. In a sum that may be rounded at hops (Numerics::rounded), any order of all
/// contributions is accepted; the caller checks that it is the same on all ranks.
Status check_value(ProofState& state, const Operation& operation, std::uint32_t index, std::uint32_t rank,
                   std::uint32_t chunk, std::uint32_t slice, Expressions::Id value) {
  Expressions& expressions = state.expressions();
  const auto [origin, origin_chunk] = operation.origin(rank, chunk);
  if (value == Expressions::unwritten) return wrong(place(operation, rank, chunk, slice) + " was never written");
  if (!is_reduction(operation.of(rank).collective)) {
    if (value == expressions.contribution({index, origin, origin_chunk, slice})) return {};
    return wrong(place(operation, rank, chunk, slice) + " should hold rank " + std::to_string(origin) + "'s input[" +
                 std::to_string(origin_chunk) + "] but holds " + expressions.text(value));
  }
  std::vector<Expressions::Id> in_order;
  for (std::uint32_t from = 0; from < operation.ranks(); ++from)
    in_order.push_back(expressions.contribution({index, from, origin_chunk, slice}));
  const auto& held = expressions.origin(value);
  if (expressions.is_contribution(value) || expressions.ranks(value).count() != operation.ranks())
    return wrong(place(operation, rank, chunk, slice) + " misses contributions: it holds " + expressions.text(value));
  if (held.operation != index || held.chunk != origin_chunk || held.slice != slice)
    return wrong(place(operation, rank, chunk, slice) + " holds another part of the data: chunk " +
                 std::to_string(held.chunk) + ", slice " + std::to_string(held.slice));
  if (operation.options().numerics == Numerics::rank_order && value != expressions.sum(in_order))
    return wrong(place(operation, rank, chunk, slice) + " should be the sum in rank order, rounded once, but is " +
                 expressions.text(value));
  return {};
}

Status check_outputs(ProofState& state, const Operation& operation, std::uint32_t index) {
  for (std::uint32_t rank = 0; rank < operation.ranks(); ++rank)
    for (std::uint32_t chunk = 0; chunk < operation.chunks(rank, Buffer::output); ++chunk) {
      const std::uint32_t slices = operation.slices(operation.length(rank, Buffer::output, chunk));
      for (std::uint32_t slice = 0; slice < slices; ++slice) {
        const auto value = state.memory(index).result(rank, Buffer::output, chunk, slice).value;
        STRAIT_TRY(check_value(state, operation, index, rank, chunk, slice, value));
        if (operation.of(rank).collective == Collective::all_reduce &&
            value != state.memory(index).result(0, Buffer::output, chunk, slice).value)
          return wrong(place(operation, rank, chunk, slice) +
                       " is added in another order than on rank 0: " + state.expressions().text(value));
      }
    }
  return {};
}

}  // namespace

Status prove(std::span<const ProofOperation> operations) {
  if (operations.empty() || operations.front().plan.empty())
    return fail(Code::invalid_argument, "there is no plan to prove");
  std::vector<Operation> described;
  std::uint32_t depth = operations.front().options.depth;
  for (const ProofOperation& operation : operations) {
    if (operation.plan.size() != operations.front().plan.size() || operation.plan.size() > proof::max_ranks)
      return fail(Code::invalid_argument,
                  "proofs take operations of the same ranks, at most " + std::to_string(proof::max_ranks) + " of them");
    described.emplace_back(operation.plan, operation.options);
    depth = std::min(depth, operation.options.depth);
    STRAIT_TRY(proof::check_structure(described.back()));
  }
  ProofState state(described, depth);
  STRAIT_TRY(state.run());
  for (std::uint32_t i = 0; i < described.size(); ++i) STRAIT_TRY(check_outputs(state, described[i], i));
  return {};
}

Status prove(const Plan& plan, const ProofOptions& options) {
  const ProofOperation operation{plan, options};
  return prove(std::span(&operation, 1));
}

Traffic traffic_of(const RankPlan& plan) {
  Traffic traffic;
  for (const Lane& lane : plan.lanes)
    for (const Step& step : lane.steps) {
      for (const Operand& source : step.sources)
        traffic.received_chunks += source.kind == Operand::Kind::receive || source.kind == Operand::Kind::peer;
      for (const Operand& destination : step.destinations)
        traffic.sent_chunks += destination.kind == Operand::Kind::send || destination.kind == Operand::Kind::peer;
    }
  return traffic;
}

}  // namespace strait
