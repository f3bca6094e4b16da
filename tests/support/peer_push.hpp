#pragma once

#include <utility>

#include "plan/plan.hpp"
#include "plan/request.hpp"

/// All-reduce without slots: chunk c belongs to rank c, which reads it from all inputs in place and writes the sum into
/// all outputs in place, in one step.
namespace strait::testing {

inline RankPlan build_peer_push(const PlanRequest& request, std::uint32_t rank) {
  constexpr std::uint16_t entered = 0, done = 1;
  RankPlan plan;
  plan.algorithm = "peer_push";
  plan.rank = rank;
  plan.ranks = request.ranks;
  plan.chunks_per_block = request.ranks;
  const auto at = [&](std::uint32_t owner, Buffer buffer) {
    return Operand{.kind = owner == rank ? Operand::Kind::local : Operand::Kind::peer,
                   .buffer = buffer,
                   .raw = buffer == Buffer::input,
                   .peer = owner,
                   .chunk = rank};
  };
  Step enter, sum, leave;
  const auto add_signal = [&](std::vector<std::uint16_t>& list, SignalEnd end) {
    list.push_back(static_cast<std::uint16_t>(plan.signals.size()));
    plan.signals.push_back(end);
  };
  for (std::uint32_t distance = 1; distance < request.ranks; ++distance) {
    const std::uint32_t peer = (rank + distance) % request.ranks;
    add_signal(enter.signals, {.signals = true, .tag = entered, .from = rank, .to = peer});
    add_signal(sum.waits, {.signals = false, .tag = entered, .from = peer, .to = rank});
    add_signal(sum.signals, {.signals = true, .tag = done, .from = rank, .to = peer});
    add_signal(leave.waits, {.signals = false, .tag = done, .from = peer, .to = rank});
  }
  for (std::uint32_t source = 0; source < request.ranks; ++source) sum.sources.push_back(at(source, Buffer::input));
  for (std::uint32_t distance = 0; distance < request.ranks; ++distance)
    sum.destinations.push_back(at((rank + distance) % request.ranks, Buffer::output));
  sum.reduces = sum.final = true;
  plan.lanes.push_back({{std::move(enter), std::move(sum), std::move(leave)}});
  return plan;
}

inline const Algorithm peer_push{
    "peer_push", "folklore",
    [](const PlanRequest& r) { return r.collective == Collective::all_reduce && r.peer_memory; }, build_peer_push,
    [](const PlanRequest&) { return Numerics::rank_order; }};

}  // namespace strait::testing
