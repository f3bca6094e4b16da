#include "plan/proof/proof_state.hpp"

#include <algorithm>

#include "plan/print.hpp"

namespace strait::proof {

ProofState::ProofState(std::span<const Operation> operations, std::uint32_t depth)
    : operations_(operations), depth_(depth), ranks_(operations.front().ranks()) {
  for (std::uint32_t i = 0; i < operations.size(); ++i) memories_.emplace_back(operations[i], i, expressions_);
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    state.first_lane = static_cast<std::uint32_t>(lanes_.size());
    for (const Operation& operation : operations)
      state.lanes = std::max(state.lanes, static_cast<std::uint32_t>(operation.of(rank).lanes.size()));
    for (std::uint32_t lane = 0; lane < state.lanes; ++lane)
      lanes_.emplace_back(LaneState{.rank = rank, .index = lane});
  }
  for (RankState& rank : ranks_) rank.clock.assign(lanes_.size() + ranks_.size(), 0);
}

void ProofState::enter(std::uint32_t rank) {
  RankState& state = ranks_[rank];
  const Operation& operation = operations_[state.operation];
  const RankPlan& plan = operation.of(rank);
  state.entered.push_back(++state.clock[lanes_.size() + rank]);
  state.links.clear();
  state.signals.clear();
  for (const LinkEnd& end : plan.links) {
    state.links.push_back(&links_[end.name()]);
    for (const std::uint32_t reader : end.readers) state.links.back()->read_by.try_emplace(reader, 0);
  }
  for (const SignalEnd& end : plan.signals) {
    state.signals.push_back(&signals_[{state.operation, end.name()}]);
  }
  for (std::uint32_t i = 0; i < plan.lanes.size(); ++i) {
    LaneState& lane = lanes_[state.first_lane + i];
    lane.slice = 0;
    lane.step = 0;
    lane.slices = operation.slices(rank, plan.lanes[i]);
    lane.clock = state.clock;
    lane.active = lane.slices > 0 && !plan.lanes[i].steps.empty();
    if (!lane.active) continue;
    ++state.running;
    runnable_.push_back(state.first_lane + i);
  }
}

void ProofState::finish_lane(LaneState& lane) {
  lane.active = false;
  RankState& rank = ranks_[lane.rank];
  merge(rank.clock, lane.clock);
  --rank.running;
}

Status ProofState::run() {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) enter(rank);
  bool progress = true;
  while (progress) {
    progress = false;
    while (!runnable_.empty()) {
      const std::uint32_t index = runnable_.back();
      runnable_.pop_back();
      STRAIT_TRY(run_lane(index));
    }
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      RankState& state = ranks_[rank];
      if (state.running > 0 || state.operation == operations_.size()) continue;
      state.left.push_back(state.clock);
      progress = true;
      if (++state.operation < operations_.size()) enter(rank);
    }
  }
  STRAIT_TRY(report_blocked());
  for (const auto& [name, link] : links_)
    if (link.released != link.published)
      return wrong("link of rank " + std::to_string(std::get<0>(name)) + " #" + std::to_string(std::get<1>(name)) +
                   ": " + std::to_string(link.published - link.released) + " slots were sent but never received");
  return check_left();
}

Status ProofState::run_lane(std::uint32_t index) {
  LaneState& lane = lanes_[index];
  const auto& steps = operation_of(lane).of(lane.rank).lanes[lane.index].steps;
  while (lane.active) {
    const Step& step = steps[lane.step];
    if (!ready(index, step)) return {};
    STRAIT_TRY(execute(lane, step));
    if (++lane.step < steps.size()) continue;
    lane.step = 0;
    if (++lane.slice == lane.slices) finish_lane(lane);
  }
  return {};
}

void ProofState::wake(std::vector<std::uint32_t>& sleepers) {
  runnable_.insert(runnable_.end(), sleepers.begin(), sleepers.end());
  sleepers.clear();
}

bool ProofState::ready(std::uint32_t index, const Step& step) {
  LaneState& lane = lanes_[index];
  const RankState& rank = ranks_[lane.rank];
  const RankPlan& plan = operation_of(lane).of(lane.rank);
  const auto sleep = [&](std::vector<std::uint32_t>& sleepers, const Operand* operand) {
    sleepers.push_back(index);
    lane.operand_missing = operand;
    return false;
  };
  for (const std::uint16_t wait : step.waits) {
    const auto times = static_cast<std::size_t>(std::count(step.waits.begin(), step.waits.end(), wait));
    lane.signal_missing = plan.signals[wait].from;
    if (rank.signals[wait]->counts.size() < times) return sleep(rank.signals[wait]->sleepers, nullptr);
  }
  for (const Operand& source : step.sources) {
    if (source.kind != Operand::Kind::receive) continue;
    Link& link = *rank.links[source.link];
    if (link.published == link.read_by[lane.rank]) return sleep(link.sleepers, &source);
  }
  for (const Operand& destination : step.destinations) {
    if (destination.kind != Operand::Kind::send) continue;
    Link& link = *rank.links[destination.link];
    if (link.published - link.released == depth_) return sleep(link.sleepers, &destination);
  }
  return true;
}

std::string ProofState::blocked_on(const LaneState& lane) const {
  if (lane.operand_missing == nullptr) return "waits for the signal of rank " + std::to_string(lane.signal_missing);
  const bool sends = lane.operand_missing->kind == Operand::Kind::send;
  return std::string("waits for a ") + (sends ? "free" : "filled") +
         " slot: " + operand_text(operation_of(lane).of(lane.rank), *lane.operand_missing);
}

Status ProofState::report_blocked() const {
  std::string text;
  int shown = 0;
  for (const LaneState& lane : lanes_) {
    if (!lane.active || ++shown > 8) continue;
    text += "\n  " + operation_of(lane).where(lane.rank, lane.index, lane.step) + " in slice " +
            std::to_string(lane.slice) + " " + blocked_on(lane);
  }
  if (shown == 0) return {};
  return wrong("deadlock with FIFOs of " + std::to_string(depth_) + " slots; " + std::to_string(shown) +
               " lanes are blocked for ever:" + text + (shown > 8 ? "\n  ..." : ""));
}

Status ProofState::check_left() const {
  for (std::size_t i = 0; i < operations_.size(); ++i)
    for (std::uint32_t owner = 0; owner < ranks_.size(); ++owner) {
      if (operations_[i].of(owner).collective == Collective::barrier)
        for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
          if (ranks_[owner].left[i][lanes_.size() + rank] < ranks_[rank].entered[i])
            return wrong("barrier: rank " + std::to_string(owner) + " may leave before rank " + std::to_string(rank) +
                         " has entered");
      for (const auto& [lane, access] : memories_[i].peer_accesses(owner))
        if (!access.before(ranks_[owner].left[i]))
          return wrong(memories_[i].text(access) + " may touch a buffer of rank " + std::to_string(owner) +
                       " after that rank has left the operation");
    }
  return {};
}

}  // namespace strait::proof
