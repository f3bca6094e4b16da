#include <algorithm>
#include <functional>
#include <utility>

#include "sim/machine_model.hpp"

namespace strait {
namespace {

using Groups = std::vector<std::vector<std::uint32_t>>;

/// Maps ranks of a group to ranks of the machine, which has `ranks` of them. A group's ranks beyond its size are the
/// CPUs that add for its members.
class Names {
 public:
  Names(const std::vector<std::uint32_t>& group, std::uint32_t ranks) : group_(group), ranks_(ranks) {}
  std::uint32_t operator()(std::uint32_t rank) const {
    const auto size = static_cast<std::uint32_t>(group_.size());
    return rank < size ? group_[rank] : ranks_ + group_[rank - size];
  }

 private:
  const std::vector<std::uint32_t>& group_;
  std::uint32_t ranks_;
};

RankPlan renamed(RankPlan plan, const Names& name) {
  for (LinkEnd& link : plan.links) {
    link.writer = name(link.writer);
    for (std::uint32_t& reader : link.readers) reader = name(reader);
  }
  for (SignalEnd& signal : plan.signals) {
    signal.from = name(signal.from);
    signal.to = name(signal.to);
  }
  for (Lane& lane : plan.lanes)
    for (Step& step : lane.steps)
      for (auto* operands : {&step.sources, &step.destinations})
        for (Operand& operand : *operands)
          if (operand.kind == Operand::Kind::peer) operand.peer = name(operand.peer);
  return plan;
}

}  // namespace

Machine part_of(const Machine& machine, Groups groups) {
  Machine part = machine;
  part.request.ranks = static_cast<std::uint32_t>(groups.front().size());
  part.request.shape = {};
  part.request.peer_memory = false;
  part.groups = std::move(groups);
  return part;
}

Plan with_receives_in_own_lanes(Plan plan) {
  const auto is_hop = [](const Step& step) {
    const bool is_copy = !step.reduces && step.sources.size() == 1 && step.waits.empty() && step.signals.empty();
    if (!is_copy) return false;
    const Operand& source = step.sources.front();
    if (source.kind == Operand::Kind::receive)
      return step.destinations.size() == 1 && step.destinations.front().kind == Operand::Kind::local;
    return source.kind == Operand::Kind::local && source.buffer == Buffer::input;
  };
  for (const RankPlan& mine : plan)
    for (const Lane& lane : mine.lanes)
      if (!std::all_of(lane.steps.begin(), lane.steps.end(), is_hop)) return plan;
  const auto is_received = [](const Step& step) { return step.sources.front().kind == Operand::Kind::receive; };
  for (RankPlan& mine : plan)
    for (std::size_t i = 0, lanes = mine.lanes.size(); i < lanes; ++i) {
      auto& steps = mine.lanes[i].steps;
      const auto received = std::stable_partition(steps.begin(), steps.end(), std::not_fn(is_received));
      if (received == steps.begin() || received == steps.end()) continue;
      Lane receives{{received, steps.end()}};
      steps.erase(received, steps.end());
      mine.lanes.push_back(std::move(receives));
    }
  return plan;
}

Plan for_groups(const Plan& plan, const Machine& part) {
  if (part.groups.empty()) return plan;
  const auto ranks = static_cast<std::uint32_t>(part.places.size());
  RankPlan idle = plan.front();
  idle.lanes.clear();
  idle.links.clear();
  idle.signals.clear();
  Plan whole(plan.size() == part.request.ranks ? ranks : 2 * ranks, idle);
  for (const auto& group : part.groups) {
    const Names name(group, ranks);
    for (std::uint32_t rank = 0; rank < plan.size(); ++rank) whole[name(rank)] = renamed(plan[rank], name);
  }
  for (std::uint32_t rank = 0; rank < whole.size(); ++rank) whole[rank].rank = rank;
  return whole;
}

}  // namespace strait
