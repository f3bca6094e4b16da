#include "plan/schedule.hpp"

#include <algorithm>
#include <map>

namespace strait {
namespace {

/// The steps that use the two ends of a link or signal, in order.
struct Uses {
  std::vector<std::uint32_t> from;
  std::map<std::uint32_t, std::vector<std::uint32_t>> to;  ///< by rank
};

void add_arrows(Schedule& schedule, const Uses& uses, bool is_signal) {
  for (const auto& [rank, readers] : uses.to)
    for (std::size_t i = 0; i < readers.size() && i < uses.from.size(); ++i)
      schedule.arrows.push_back({uses.from[i], readers[i], is_signal});
}

/// Assigns to each step the length of the longest path from the start as its row, in topological order.
void place(Schedule& schedule) {
  const std::size_t count = schedule.steps.size();
  std::vector<std::vector<std::uint32_t>> next(count);
  std::vector<std::uint32_t> missing(count, 0);
  const auto add = [&](std::uint32_t from, std::uint32_t to) {
    next[from].push_back(to);
    ++missing[to];
  };
  for (const Schedule::Arrow& arrow : schedule.arrows) add(arrow.from, arrow.to);
  for (std::uint32_t i = 0; i + 1 < count; ++i)
    if (schedule.steps[i + 1].step > 0) add(i, i + 1);
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < count; ++i)
    if (missing[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    const std::uint32_t step = ready.back();
    ready.pop_back();
    schedule.rows = std::max(schedule.rows, schedule.steps[step].row + 1);
    for (const std::uint32_t after : next[step]) {
      schedule.steps[after].row = std::max(schedule.steps[after].row, schedule.steps[step].row + 1);
      if (--missing[after] == 0) ready.push_back(after);
    }
  }
}

}  // namespace

Schedule schedule_of(const Plan& plan) {
  Schedule schedule;
  std::map<LinkName, Uses> links;
  std::map<SignalName, Uses> signals;
  for (const RankPlan& mine : plan)
    for (std::uint32_t lane = 0; lane < mine.lanes.size(); ++lane)
      for (std::uint32_t index = 0; index < mine.lanes[lane].steps.size(); ++index) {
        const Step& step = mine.lanes[lane].steps[index];
        const auto id = static_cast<std::uint32_t>(schedule.steps.size());
        schedule.steps.push_back({mine.rank, lane, index, 0});
        const auto uses_of_link = [&](const Operand& operand) -> Uses& {
          return links[mine.links[operand.link].name()];
        };
        const auto uses_of_signal = [&](std::uint16_t signal) -> Uses& { return signals[mine.signals[signal].name()]; };
        for (const Operand& source : step.sources)
          if (source.kind == Operand::Kind::receive) uses_of_link(source).to[mine.rank].push_back(id);
        for (const Operand& destination : step.destinations)
          if (destination.kind == Operand::Kind::send) uses_of_link(destination).from.push_back(id);
        for (const std::uint16_t wait : step.waits) uses_of_signal(wait).to[mine.rank].push_back(id);
        for (const std::uint16_t signal : step.signals) uses_of_signal(signal).from.push_back(id);
      }
  for (const auto& [name, uses] : links) add_arrows(schedule, uses, false);
  for (const auto& [name, uses] : signals) add_arrows(schedule, uses, true);
  place(schedule);
  return schedule;
}

}  // namespace strait
