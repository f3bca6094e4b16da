#include <algorithm>

#include "plan/clock_simulation.hpp"

namespace strait::clock_detail {

/// Creates the channels and counters. The two ends of a link or a signal are found by their common name.
void Simulation::connect() {
  struct LinkRef {
    const LinkEnd* end;
    std::uint32_t* channel;
  };
  struct SignalRef {
    const SignalEnd* end;
    std::uint32_t* counter;
  };
  std::vector<LinkRef> links;
  std::vector<SignalRef> signals;
  for (const RankPlan& mine : plan_) {
    RankClock& rank = ranks_.emplace_back();
    rank.lanes.resize(slices_ == 0 ? 0 : mine.lanes.size());
    rank.next_message.assign(mine.links.size(), 0);
    rank.channels.resize(mine.links.size());
    rank.counters.resize(mine.signals.size());
    for (std::size_t i = 0; i < mine.links.size(); ++i) links.push_back({&mine.links[i], &rank.channels[i]});
    for (std::size_t i = 0; i < mine.signals.size(); ++i) signals.push_back({&mine.signals[i], &rank.counters[i]});
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.end->name() < b.end->name(); };
  std::stable_sort(links.begin(), links.end(), by_name);
  std::stable_sort(signals.begin(), signals.end(), by_name);
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (i == 0 || links[i].end->name() != links[i - 1].end->name()) {
      channels_.push_back({{}, links[i].end->writer, links[i].end->readers});
      channels_.back().messages.reserve(slices_);
    }
    *links[i].channel = static_cast<std::uint32_t>(channels_.size() - 1);
  }
  for (std::size_t i = 0; i < signals.size(); ++i) {
    if (i == 0 || signals[i].end->name() != signals[i - 1].end->name()) counters_.emplace_back();
    *signals[i].counter = static_cast<std::uint32_t>(counters_.size() - 1);
  }
}

}  // namespace strait::clock_detail
