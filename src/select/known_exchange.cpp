#include "select/known_exchange.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "select/link_rates.hpp"
#include "topology/nvml.hpp"

namespace strait {
namespace {

std::vector<ResourceId> crossed(const Topology& topology, DeviceId from, DeviceId to, bool through_host) {
  if (!through_host) return topology.path(from, to).crosses;
  const DeviceId memory = topology.numa_of(from);
  std::vector<ResourceId> all = topology.path(from, memory).crosses;
  const Path down = topology.path(memory, to);
  all.insert(all.end(), down.crosses.begin(), down.crosses.end());
  return all;
}

bool is_measured(const Topology& topology, const Link& link) {
  const auto& rates = topology.data().calibrations;
  const auto has = [&](DeviceId from, DeviceId to) {
    return std::any_of(rates.begin(), rates.end(),
                       [&](const MeasuredRate& rate) { return rate.from == from && rate.to == to; });
  };
  return has(link.lower, link.upper) && has(link.upper, link.lower);
}

/// Makes links between sockets that were not measured unlimited: their assumed rates are too low.
Topology without_assumptions(const Topology& topology) {
  constexpr double no_limit_gbps = 1e6;
  TopologyData data = topology.data();
  for (Link& link : data.links)
    if (link.kind == LinkKind::socket && !is_measured(topology, link)) link.up_gbps = link.down_gbps = no_limit_gbps;
  return std::move(Topology::make(std::move(data))).value();
}

}  // namespace

double exchange_gbps(const Topology& topology, std::span<const DeviceId> gpus, bool through_host) {
  std::map<ResourceId, double> loads;  // bytes that cross a resource per byte that a GPU receives
  for (const DeviceId from : gpus)
    for (const DeviceId to : gpus)
      if (from != to)
        for (const ResourceId id : crossed(topology, from, to, through_host))
          loads[id] += 1 / static_cast<double>(gpus.size() - 1);
  double slowest_gbps = 0;
  for (const auto& [id, load] : loads) {
    const double gbps = topology.resource(id).bandwidth_gbps / load;
    if (gbps > 0 && (slowest_gbps == 0 || gbps < slowest_gbps)) slowest_gbps = gbps;
  }
  return slowest_gbps;
}

bool knows_rates(const Topology& topology, std::span<const DeviceId> gpus) {
  const auto is_known = [&](DeviceId gpu) {
    for (DeviceId id = gpu; topology.device(id).parent != no_device; id = topology.device(id).parent)
      for (const Link& link : topology.data().links) {
        if (link.kind != LinkKind::pcie || link.lower != id) continue;
        if (id == gpu && is_measured(topology, link))
          return true;  // the measurement crossed all links up to the memory
        if (link.pcie.gigatransfers == 0 || link.pcie.lanes == 0) return false;
      }
    return true;
  };
  return std::all_of(gpus.begin(), gpus.end(), is_known);
}

ExchangeRates known_exchange_rates(const Topology& topology, const KnownRates& known,
                                   const std::vector<std::string>& bus_ids, bool through_host) {
  const Topology with_rates = without_assumptions(with_known_rates(topology, known));
  std::vector<DeviceId> gpus;
  std::set<DeviceId> nodes;
  for (const std::string& bus_id : bus_ids)
    for (const DeviceId gpu : topology.all(DeviceKind::gpu))
      if (topology.device(gpu).bus_id == normal_bus_id(bus_id)) {
        gpus.push_back(gpu);
        nodes.insert(topology.numa_of(gpu));
      }
  if (gpus.size() != bus_ids.size() || !knows_rates(with_rates, gpus)) return {};
  ExchangeRates rates{exchange_gbps(with_rates, gpus, through_host)};
  const auto measured = known.gpus.find(topology_fingerprint(topology));
  if (measured != known.gpus.end())
    rates.sums_gbps = measured->second.host_sums_gbps * static_cast<double>(nodes.size());
  return rates;
}

}  // namespace strait
