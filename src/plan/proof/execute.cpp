#include <algorithm>
#include <optional>

#include "plan/print.hpp"
#include "plan/proof/proof_state.hpp"

/// The effect of one step on the state of a proof.
namespace strait::proof {

Status ProofState::execute(LaneState& lane, const Step& step) {
  RankState& rank = ranks_[lane.rank];
  const std::uint32_t lane_index = rank.first_lane + lane.index;
  const Access access{.lane = lane_index,
                      .time = ++lane.clock[lane_index],
                      .rank = lane.rank,
                      .rank_lane = lane.index,
                      .step = static_cast<std::uint32_t>(lane.step),
                      .slice = lane.slice};
  for (const std::uint16_t wait : step.waits) {
    merge(lane.clock, *rank.signals[wait]->counts.front());
    rank.signals[wait]->counts.pop_front();
  }
  if (!step.sources.empty()) {
    STRAIT_ASSIGN(const Length length, length_of(lane, step, access));
    std::vector<Content> sources;
    for (const Operand& source : step.sources) {
      STRAIT_TRY(check_entered(lane, source, access));
      STRAIT_ASSIGN(const Content content, take(lane, source, access));
      if (content.length != length)
        return wrong(at(access) + ": " + operand_text(operation_of(lane).of(lane.rank), source) +
                     " holds a chunk of another length (" + expressions_.text(content.value) + ")");
      sources.push_back(content);
    }
    if (step.reduces) STRAIT_TRY(check_sum(lane, step, sources, access));
    std::vector<Expressions::Id> terms;
    for (const Content& source : sources) terms.push_back(source.value);
    const auto clock = std::make_shared<const VectorClock>(lane.clock);
    for (const Operand& destination : step.destinations) {
      STRAIT_TRY(check_entered(lane, destination, access));
      const auto value = step.reduces ? expressions_.sum(terms) : terms.front();
      STRAIT_TRY(put(lane, destination, {.value = value, .length = length}, access, clock));
    }
  }
  if (step.signals.empty()) return {};
  const auto clock = std::make_shared<const VectorClock>(lane.clock);
  for (const std::uint16_t signal : step.signals) {
    rank.signals[signal]->counts.push_back(clock);
    wake(rank.signals[signal]->sleepers);
  }
  return {};
}

Status ProofState::check_entered(const LaneState& lane, const Operand& operand, const Access& access) const {
  if (operand.kind != Operand::Kind::peer) return {};
  const std::uint32_t operation = ranks_[lane.rank].operation;
  const RankState& owner = ranks_[operand.peer];
  if (owner.entered.size() > operation && lane.clock[lanes_.size() + operand.peer] >= owner.entered[operation])
    return {};
  return wrong(at(access) + ": rank " + std::to_string(operand.peer) +
               " may not have entered the operation yet, so its buffers are not to be touched");
}

Result<Length> ProofState::length_of(const LaneState& lane, const Step& step, const Access& access) const {
  std::optional<Length> length;
  for (const auto* operands : {&step.sources, &step.destinations})
    for (const Operand& operand : *operands) {
      if (operand.buffer == Buffer::scratch) continue;
      const std::uint32_t owner = operand.kind == Operand::Kind::peer ? operand.peer : lane.rank;
      if (operand.chunk >= operation_of(lane).chunks(owner, operand.buffer))
        return wrong(at(access) + ": " + operand_text(operation_of(lane).of(lane.rank), operand) +
                     " names a chunk that this rank does not have");
      const Length mine = operation_of(lane).length(owner, operand.buffer, operand.chunk);
      if (length && *length != mine) return wrong(at(access) + ": the operands have different lengths");
      length = mine;
    }
  if (!length) return wrong(at(access) + ": no operand is a chunk of the input or output, so nothing gives the length");
  return *length;
}

Result<Content> ProofState::take(LaneState& lane, const Operand& source, const Access& access) {
  RankState& rank = ranks_[lane.rank];
  if (source.kind != Operand::Kind::receive) {
    const std::uint32_t owner = source.kind == Operand::Kind::peer ? source.peer : lane.rank;
    return memories_[rank.operation].read(owner, source, access, lane.clock);
  }
  Link& link = *rank.links[source.link];
  std::uint64_t& next = link.read_by[lane.rank];
  if (next == link.published) return wrong(at(access) + ": one step takes two slots of one link");
  const Message& message = link.slots[next - link.released];
  const Content content = message.content;
  merge(lane.clock, *message.clock);
  ++next;
  std::uint64_t slowest = next;
  for (const auto& [reader, count] : link.read_by) slowest = std::min(slowest, count);
  while (link.released < slowest) {
    link.slots.pop_front();
    ++link.released;
  }
  wake(link.sleepers);
  return content;
}

Status ProofState::put(LaneState& lane, const Operand& destination, const Content& content, const Access& access,
                       const std::shared_ptr<const VectorClock>& clock) {
  RankState& rank = ranks_[lane.rank];
  if (destination.kind == Operand::Kind::send) {
    Link& link = *rank.links[destination.link];
    if (link.published - link.released == depth_) return wrong(at(access) + ": one step fills two slots of one link");
    link.slots.push_back({content, clock});
    ++link.published;
    wake(link.sleepers);
    return {};
  }
  const std::uint32_t owner = destination.kind == Operand::Kind::peer ? destination.peer : lane.rank;
  return memories_[rank.operation].write(owner, destination, content, access, lane.clock);
}

Status ProofState::check_sum(const LaneState& lane, const Step& step, std::span<const Content> sources,
                             const Access& access) const {
  const RankPlan& plan = operation_of(lane).of(lane.rank);
  const Origin& first = expressions_.origin(sources.front().value);
  RankSet seen;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Expressions::Id value = sources[i].value;
    const auto text = [&] { return operand_text(plan, step.sources[i]) + " holds " + expressions_.text(value); };
    const Origin& origin = expressions_.origin(value);
    if (origin.operation != first.operation || origin.chunk != first.chunk || origin.slice != first.slice)
      return wrong(at(access) + ": adds different parts of the data: " + text());
    if ((seen & expressions_.ranks(value)).any()) return wrong(at(access) + ": adds a contribution twice: " + text());
    seen |= expressions_.ranks(value);
  }
  const bool complete = seen.count() == operation_of(lane).ranks();
  if (complete != step.final)
    return wrong(at(access) + (complete ? ": the result holds all contributions but is not marked final"
                                        : ": the result is marked final but contributions are missing"));
  return {};
}

}  // namespace strait::proof
