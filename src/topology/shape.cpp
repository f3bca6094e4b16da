#include "topology/shape.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace strait {
namespace {

using Islands = std::vector<std::uint32_t>;

/// Numbers the islands of ranks with equal keys, in the order of their first ranks.
template <class Key>
Islands numbered(const std::vector<Key>& keys) {
  std::map<Key, std::uint32_t> numbers;
  Islands islands;
  for (const Key& key : keys)
    islands.push_back(numbers.emplace(key, static_cast<std::uint32_t>(numbers.size())).first->second);
  return islands;
}

std::uint32_t count(const Islands& islands) { return *std::max_element(islands.begin(), islands.end()) + 1; }

/// Returns islands of ranks that are connected by chains of pairs, each `joined` in both directions.
Islands connected(std::span<const DeviceId> ranks, const std::function<bool(DeviceId, DeviceId)>& joined) {
  constexpr auto unseen = UINT32_MAX;
  Islands islands(ranks.size(), unseen);
  std::uint32_t next = 0;
  for (std::size_t start = 0; start < ranks.size(); ++start) {
    if (islands[start] != unseen) continue;
    std::vector<std::size_t> open{start};
    islands[start] = next;
    while (!open.empty()) {
      const std::size_t here = open.back();
      open.pop_back();
      for (std::size_t other = start + 1; other < ranks.size(); ++other)
        if (islands[other] == unseen && joined(ranks[here], ranks[other]) && joined(ranks[other], ranks[here])) {
          islands[other] = next;
          open.push_back(other);
        }
    }
    ++next;
  }
  return islands;
}

/// Whether each island of `fine` lies within one island of `coarse`.
bool refines(const Islands& fine, const Islands& coarse) {
  std::vector<std::uint32_t> within(count(fine), UINT32_MAX);
  for (std::size_t rank = 0; rank < fine.size(); ++rank) {
    std::uint32_t& known = within[fine[rank]];
    if (known == UINT32_MAX) known = coarse[rank];
    if (known != coarse[rank]) return false;
  }
  return true;
}

}  // namespace

std::vector<Level> levels_of(const Topology& topology, std::span<const DeviceId> ranks) {
  if (ranks.empty()) return {};
  std::vector<DeviceId> hosts, numas;
  for (const DeviceId rank : ranks) {
    hosts.push_back(topology.host_of(rank));
    numas.push_back(topology.numa_of(rank));
  }
  const auto by_nvlink = [&](DeviceId a, DeviceId b) { return topology.joined_by_nvlink(a, b); };
  const auto by_p2p = [&](DeviceId a, DeviceId b) {
    const bool gpus = topology.device(a).kind == DeviceKind::gpu && topology.device(b).kind == DeviceKind::gpu;
    return gpus && topology.p2p(a, b) == P2pStatus::ok;
  };
  std::vector<Level> candidates{{"nvlink", connected(ranks, by_nvlink)},
                                {"p2p", connected(ranks, by_p2p)},
                                {"numa", numbered(numas)},
                                {"host", numbered(hosts)}};
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Level& a, const Level& b) { return count(a.islands) > count(b.islands); });
  // NVLink takes precedence: a boundary inside an NVLink island does not make its ranks more distant.
  const Islands nvlink =
      std::find_if(candidates.begin(), candidates.end(), [](const Level& l) { return l.name == "nvlink"; })->islands;
  std::vector<Level> levels;
  for (Level& level : candidates) {
    const bool joins_nobody = count(level.islands) == ranks.size() && (level.name != "host" || ranks.size() == 1);
    if (joins_nobody || !refines(nvlink, level.islands)) continue;
    if (!levels.empty() && (levels.back().islands == level.islands || !refines(levels.back().islands, level.islands)))
      continue;
    levels.push_back(std::move(level));
  }
  return levels;
}

Shape shape_of(const Topology& topology, std::span<const DeviceId> ranks) {
  Shape shape;
  for (Level& level : levels_of(topology, ranks)) shape.levels.push_back(std::move(level.islands));
  return shape;
}

Result<std::vector<Load>> loads_of(const Topology& topology, std::span<const Flow> flows) {
  std::vector<double> bytes(topology.resource_count());
  for (const Flow& flow : flows) {
    const Path path = topology.path(flow.from, flow.to);
    if (path.kind == PathKind::none)
      return fail(Code::unsupported, "there is no path from '" + topology.device(flow.from).name + "' to '" +
                                         topology.device(flow.to).name +
                                         "': they share no host, and no network joins their NICs");
    for (const ResourceId id : path.crosses) bytes[id] += flow.bytes;
  }
  std::vector<Load> loads;
  for (ResourceId id = 0; id < bytes.size(); ++id) {
    const double gbps = topology.resource(id).bandwidth_gbps;
    if (bytes[id] > 0 && gbps > 0) loads.push_back({id, bytes[id], bytes[id] / gbps * 1e-3});
  }
  std::stable_sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.time_us > b.time_us; });
  return loads;
}

}  // namespace strait
