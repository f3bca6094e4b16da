#include <algorithm>
#include <map>
#include <optional>

#include "topo/measurements.hpp"

namespace strait::topo {
namespace {

/// Sets the rate of one direction, and replaces an earlier one.
void put(TopologyData& data, DeviceId from, DeviceId to, double gbps, const std::string& origin) {
  if (gbps <= 0) return;
  std::erase_if(data.calibrations, [&](const MeasuredRate& r) { return r.from == from && r.to == to; });
  data.calibrations.push_back({.from = from, .to = to, .bandwidth_gbps = gbps, .latency_us = 0, .origin = origin});
}

const Link* link_between(const TopologyData& data, DeviceId lower, DeviceId upper, LinkKind kind) {
  const auto found = std::find_if(data.links.begin(), data.links.end(), [&](const Link& link) {
    return link.kind == kind && link.lower == lower && link.upper == upper;
  });
  return found == data.links.end() ? nullptr : &*found;
}

/// Returns the outermost PCIe link between a device and its NUMA node as (lower, upper).
std::optional<std::pair<DeviceId, DeviceId>> way_out(const Topology& topology, DeviceId id) {
  std::optional<std::pair<DeviceId, DeviceId>> last;
  for (DeviceId up = topology.device(id).parent; up != no_device; id = up, up = topology.device(up).parent)
    if (link_between(topology.data(), id, up, LinkKind::pcie) != nullptr) last = {id, up};
  return last;
}

}  // namespace

Result<Topology> with_measured_rates(const Topology& topology, const GpuMeasurements& gpus, const std::string& origin) {
  TopologyData data = topology.data();
  std::vector<DeviceId> ids;
  for (const std::string& bus_id : gpus.bus_ids) {
    DeviceId found = no_device;
    for (const DeviceId gpu : topology.all(DeviceKind::gpu))
      if (topology.device(gpu).bus_id == bus_id) found = gpu;
    ids.push_back(found);
  }
  struct Shared {
    std::size_t gpus = 0;
    double up_alone = 0, down_alone = 0, up_all = 0, down_all = 0;
  };
  std::map<std::pair<DeviceId, DeviceId>, Shared> shared;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == no_device) continue;
    const HostLink& link = gpus.host_links[i];
    const DeviceId parent = topology.device(ids[i]).parent;
    if (link_between(data, ids[i], parent, LinkKind::pcie) != nullptr) {
      put(data, ids[i], parent, link.up_gbps, origin + ", alone");
      put(data, parent, ids[i], link.down_gbps, origin + ", alone");
    }
    if (const auto out = way_out(topology, ids[i])) {
      Shared& port = shared[*out];
      ++port.gpus;
      port.up_alone += link.up_gbps;
      port.down_alone += link.down_gbps;
      port.up_all += link.up_all_gbps;
      port.down_all += link.down_all_gbps;
    }
    double to_switch = 0, from_switch = 0;
    for (std::size_t j = 0; j < ids.size(); ++j) {
      if (i == j || ids[j] == no_device) continue;
      if (link_between(data, ids[i], ids[j], LinkKind::nvlink) || link_between(data, ids[j], ids[i], LinkKind::nvlink))
        put(data, ids[i], ids[j], gpus.pair_gbps[i][j], origin + ", one pair at a time");
      to_switch = std::max(to_switch, gpus.pair_gbps[i][j]);
      from_switch = std::max(from_switch, gpus.pair_gbps[j][i]);
    }
    for (const Link& nvlink : topology.data().links)
      if (nvlink.kind == LinkKind::nvlink && nvlink.lower == ids[i] &&
          topology.device(nvlink.upper).kind == DeviceKind::nvswitch) {
        put(data, ids[i], nvlink.upper, to_switch, origin + ", one pair at a time");
        put(data, nvlink.upper, ids[i], from_switch, origin + ", one pair at a time");
      }
  }
  constexpr double clearly = 0.9;  // share of the sum of its GPUs' rates alone; below it the GPUs share the port
  for (const auto& [link, port] : shared) {
    if (port.gpus < 2) continue;
    if (port.up_all < clearly * port.up_alone)
      put(data, link.first, link.second, port.up_all, origin + ", all at once");
    if (port.down_all < clearly * port.down_alone)
      put(data, link.second, link.first, port.down_all, origin + ", all at once");
  }
  return Topology::make(std::move(data));
}

}  // namespace strait::topo
