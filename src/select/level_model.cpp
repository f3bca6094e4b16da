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
  machine.rank.paths = {};
  machine.rank.resources = {};
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

ClockModel clock_model(const LevelModel& machine) {
  ClockModel model = machine.rank;
  model.ranks = machine.ranks();
  // Two resources, out and in, for each finer island of each level that has a limit.
  std::vector<std::size_t> first_resource(machine.levels.size(), 0);
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    first_resource[l] = model.resources.size();
    if (machine.levels[l].island_gbps > 0)
      for (std::uint32_t island = 0; island < model.ranks / machine.finer_ranks(l); ++island)
        for (const char* way : {" out", " in"})
          model.resources.push_back({"level " + std::to_string(l) + " of island " + std::to_string(island) + way,
                                     machine.levels[l].island_gbps});
  }
  model.paths.resize(std::size_t{model.ranks} * model.ranks);
  for (std::uint32_t from = 0; from < model.ranks; ++from)
    for (std::uint32_t to = 0; to < model.ranks; ++to) {
      if (from == to) continue;
      const std::size_t l = machine.level_between(from, to);
      const LevelRates& level = machine.levels[l];
      const std::uint32_t island_ranks = machine.finer_ranks(l);
      ClockPath& path = model.paths[std::size_t{from} * model.ranks + to];
      path.latency_us = level.latency_us;
      path.gbps = level.gbps;
      if (level.island_gbps > 0)
        path.resources = {static_cast<std::uint16_t>(first_resource[l] + 2 * (from / island_ranks)),
                          static_cast<std::uint16_t>(first_resource[l] + 2 * (to / island_ranks) + 1)};
    }
  return model;
}

}  // namespace strait
