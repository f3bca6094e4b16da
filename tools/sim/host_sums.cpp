#include <algorithm>

#include "sim/machine_model.hpp"

namespace strait {
namespace {

/// Whether the lane adds contributions of all ranks. Sums within islands stay on GPUs.
bool adds(const Lane& lane) {
  return std::any_of(lane.steps.begin(), lane.steps.end(), [](const Step& step) { return step.final; });
}

bool uses_scratch(const Lane& lane) {
  const auto is_scratch = [](const Operand& operand) { return operand.buffer == Buffer::scratch; };
  return std::any_of(lane.steps.begin(), lane.steps.end(), [&](const Step& step) {
    return std::any_of(step.sources.begin(), step.sources.end(), is_scratch) ||
           std::any_of(step.destinations.begin(), step.destinations.end(), is_scratch);
  });
}

/// Which ends of a link are used by lanes that move to CPUs.
struct Moved {
  bool writer = false;
  bool reader = false;  ///< all of them
};

/// Returns which ends of the link are used by lanes that add.
Moved moved(const Plan& plan, const LinkEnd& link) {
  Moved moved;
  const auto uses = [&](std::uint32_t rank, bool sends) {
    for (const Lane& lane : plan[rank].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& operand : sends ? step.destinations : step.sources) {
          const bool is_link = operand.kind == (sends ? Operand::Kind::send : Operand::Kind::receive);
          if (!is_link) continue;
          const LinkEnd& end = plan[rank].links[operand.link];
          if (end.writer == link.writer && end.tag == link.tag && end.readers == link.readers) return adds(lane);
        }
    return false;
  };
  moved.writer = uses(link.writer, true);
  moved.reader = uses(link.readers.front(), false);
  return moved;
}

/// Returns a signal that a rank sends to itself, with the ends moved to the CPU that lanes that add use.
SignalEnd moved_end(const RankPlan& mine, SignalEnd signal) {
  const auto ranks = mine.ranks;
  const auto is_used = [&](const std::vector<std::uint16_t>& ends, bool signals) {
    return std::any_of(ends.begin(), ends.end(), [&](std::uint16_t end) {
      return mine.signals[end].tag == signal.tag && mine.signals[end].signals == signals;
    });
  };
  for (const Lane& lane : mine.lanes)
    for (const Step& step : lane.steps) {
      if (adds(lane) && is_used(step.signals, true)) signal.from = mine.rank + ranks;
      if (adds(lane) && is_used(step.waits, false)) signal.to = mine.rank + ranks;
    }
  return signal;
}

LinkEnd moved_end(const Plan& plan, LinkEnd link) {
  const auto ranks = static_cast<std::uint32_t>(plan.size());
  const Moved ends = moved(plan, link);
  if (ends.writer) link.writer += ranks;
  if (ends.reader)
    for (std::uint32_t& reader : link.readers) reader += ranks;
  return link;
}

}  // namespace

bool has_host_sums(const Plan& plan) {
  for (const RankPlan& mine : plan) {
    const auto adding = std::count_if(mine.lanes.begin(), mine.lanes.end(), adds);
    const bool has_signals = std::any_of(mine.signals.begin(), mine.signals.end(),
                                         [](const SignalEnd& signal) { return signal.from != signal.to; });
    if (adding == 0 || adding == static_cast<std::ptrdiff_t>(mine.lanes.size()) || has_signals) return false;
    for (const Lane& lane : mine.lanes)
      if (adds(lane) && uses_scratch(lane)) return false;
  }
  return !plan.empty();
}

Plan with_host_sums(const Plan& plan) {
  const auto ranks = static_cast<std::uint32_t>(plan.size());
  Plan split;
  for (const bool on_host : {false, true})
    for (const RankPlan& mine : plan) {
      RankPlan part = mine;
      part.rank = on_host ? ranks + mine.rank : mine.rank;
      std::erase_if(part.lanes, [&](const Lane& lane) { return adds(lane) != on_host; });
      for (LinkEnd& link : part.links) link = moved_end(plan, link);
      for (SignalEnd& signal : part.signals) signal = moved_end(mine, signal);
      for (Lane& lane : part.lanes)
        for (Step& step : lane.steps)
          for (auto* operands : {&step.sources, &step.destinations})
            for (Operand& operand : *operands) {
              if (!on_host || operand.kind != Operand::Kind::local) continue;
              operand.kind = Operand::Kind::peer;
              operand.peer = mine.rank;
            }
      split.push_back(std::move(part));
    }
  return split;
}

}  // namespace strait
