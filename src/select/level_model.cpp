#include <algorithm>

#include "select/estimate.hpp"

namespace strait {

std::size_t LevelModel::level_between(std::uint32_t a, std::uint32_t b) const {
  for (std::size_t level = 0; level + 1 < levels.size(); ++level)
    if (a / levels[level].ranks == b / levels[level].ranks) return level;
  return levels.size() - 1;
}

LevelModel level_model(const ClockModel& model) {
  LevelModel machine{model, {}};
  machine.rank_costs.paths = {};
  machine.rank_costs.resources = {};
  const auto alike = [](const ClockPath& a, const ClockPath& b) {
    return a.latency_us == b.latency_us && a.gbps == b.gbps;
  };
  const std::uint32_t ranks = model.ranks;
  const ClockPath nothing;
  const auto path = [&](std::uint32_t from, std::uint32_t to) -> const ClockPath& {
    return model.paths.empty() ? nothing : model.paths[std::size_t{from} * ranks + to];
  };
  std::uint32_t island = 1;
  while (island < ranks && alike(path(0, island), path(0, 1))) ++island;
  const ClockPath& near = path(0, ranks > 1 ? 1 : 0);
  const ClockPath& far = path(0, ranks - 1);
  if (island < ranks && ranks % island == 0) machine.levels.push_back({island, near.latency_us, near.gbps, 0});
  double shared_gbps = 0;
  for (const std::uint16_t resource : far.resources) {
    const double gbps = model.resources[resource].gbps;
    shared_gbps = shared_gbps == 0 ? gbps : std::min(shared_gbps, gbps);
  }
  machine.levels.push_back({ranks, far.latency_us, far.gbps, shared_gbps});
  return machine;
}

}  // namespace strait
