#include "topology/topology.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace strait {
namespace {

tl::unexpected<Error> bad(std::string message) {
  return fail(Code::invalid_argument, "topology: " + std::move(message));
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

/// Whether a device may be plugged into another, by their kinds.
bool may_hold(DeviceKind parent, DeviceKind child) {
  switch (child) {
    case DeviceKind::host:
    case DeviceKind::network_switch:
      return false;
    case DeviceKind::numa:
    case DeviceKind::nvswitch:
      return parent == DeviceKind::host;
    case DeviceKind::root_port:
      return parent == DeviceKind::numa;
    case DeviceKind::pcie_switch:
    case DeviceKind::gpu:
    case DeviceKind::nic:
      return parent == DeviceKind::numa || parent == DeviceKind::root_port || parent == DeviceKind::pcie_switch;
  }
  return false;
}

bool may_stand_alone(DeviceKind kind) {
  return kind == DeviceKind::host || kind == DeviceKind::network_switch || kind == DeviceKind::nvswitch;
}

/// Whether a link of this kind may join the two kinds of devices.
bool may_join(LinkKind kind, DeviceKind a, DeviceKind b) {
  const auto either = [&](DeviceKind x, DeviceKind y) { return (a == x && b == y) || (a == y && b == x); };
  switch (kind) {
    case LinkKind::pcie:
      return true;  // check_link() compares it with the tree
    case LinkKind::nvlink:
      return either(DeviceKind::gpu, DeviceKind::gpu) || either(DeviceKind::gpu, DeviceKind::nvswitch);
    case LinkKind::socket:
      return either(DeviceKind::numa, DeviceKind::numa);
    case LinkKind::network:
      return either(DeviceKind::nic, DeviceKind::network_switch) || either(DeviceKind::nic, DeviceKind::nic) ||
             either(DeviceKind::network_switch, DeviceKind::network_switch);
  }
  return false;
}

bool is_rate(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

Result<Topology> Topology::make(TopologyData data) {
  Topology topology(std::move(data));
  STRAIT_TRY(topology.check_devices());
  for (const Link& link : topology.data_.links) STRAIT_TRY(topology.check_link(link));
  STRAIT_TRY(topology.index_links());
  STRAIT_TRY(topology.apply_calibrations());
  STRAIT_TRY(topology.check_reachable());
  return topology;
}

Status Topology::check_parent(DeviceId id) const {
  const Device& device = data_.devices[id];
  if (device.parent == no_device) {
    if (may_stand_alone(device.kind)) return {};
    return bad(std::string(strait::name(device.kind)) + " " + quoted(device.name) +
               " is part of no host: name its parent");
  }
  if (device.parent >= data_.devices.size()) return bad(quoted(device.name) + " has a parent that does not exist");
  const Device& parent = data_.devices[device.parent];
  if (device.parent >= id)
    return bad("the parents of " + quoted(device.name) +
               " form a cycle, or are listed after it: " + quoted(parent.name));
  if (!may_hold(parent.kind, device.kind))
    return bad(std::string(strait::name(device.kind)) + " " + quoted(device.name) + " cannot be part of " +
               std::string(strait::name(parent.kind)) + " " + quoted(parent.name));
  return {};
}

Status Topology::check_devices() {
  constexpr std::uint32_t most_levels = 128;  // some functions, as in draw.cpp, are recursive over levels
  if (data_.devices.empty()) return bad("there are no devices");
  std::vector<std::uint32_t> levels;
  for (DeviceId id = 0; id < data_.devices.size(); ++id) {
    const Device& device = data_.devices[id];
    if (device.name.empty()) return bad("device " + std::to_string(id) + " has no name");
    if (!by_name_.emplace(device.name, id).second) return bad("two devices are called " + quoted(device.name));
    STRAIT_TRY(check_parent(id));
    if (!is_rate(device.memory_gbps)) return bad("the memory rate of " + quoted(device.name) + " is no rate");
    const bool inside = device.parent != no_device;
    levels.push_back(inside ? levels[device.parent] + 1 : 0);
    if (levels.back() > most_levels) return bad(quoted(device.name) + " is nested deeper than any machine is");
    host_.push_back(device.kind == DeviceKind::host ? id : inside ? host_[device.parent] : no_device);
    numa_.push_back(device.kind == DeviceKind::numa ? id : inside ? numa_[device.parent] : no_device);
    if (inside) members_[host_[id]].push_back(id);
  }
  for (const DeviceId host : all(DeviceKind::host))
    if (std::none_of(data_.devices.begin(), data_.devices.end(),
                     [&](const Device& d) { return d.kind == DeviceKind::numa && d.parent == host; }))
      return bad("host " + quoted(device(host).name) + " has no NUMA node: every host has one at least");
  for (const auto& [pair, status] : data_.p2p)
    for (const DeviceId id : {pair.first, pair.second})
      if (id >= data_.devices.size() || device(id).kind != DeviceKind::gpu)
        return bad("a P2P status (" + std::string(strait::name(status)) + ") is given for something that is no GPU" +
                   (id < data_.devices.size() ? ": " + quoted(device(id).name) : std::string()));
  return {};
}

Status Topology::check_link(const Link& link) const {
  if (link.upper >= data_.devices.size() || link.lower >= data_.devices.size())
    return bad("a link joins a device that does not exist");
  const Device &upper = device(link.upper), &lower = device(link.lower);
  const std::string which =
      std::string(strait::name(link.kind)) + " link between " + quoted(upper.name) + " and " + quoted(lower.name);
  if (link.upper == link.lower) return bad(which + " joins a device to itself");
  if (!may_join(link.kind, upper.kind, lower.kind))
    return bad(which + " cannot be: a " + std::string(strait::name(upper.kind)) + " and a " +
               std::string(strait::name(lower.kind)));
  if (link.kind == LinkKind::pcie && lower.parent != link.upper)
    return bad(which + " contradicts the tree, in which the parent of " + quoted(lower.name) + " is another");
  const bool one_host = host_[link.upper] == host_[link.lower];
  if ((link.kind == LinkKind::socket && !one_host) ||
      (link.kind == LinkKind::nvlink && !one_host && upper.parent != no_device && lower.parent != no_device))
    return bad(which + " joins two hosts");
  if (!is_rate(link.up_gbps) || !is_rate(link.down_gbps) || link.up_gbps == 0 || link.down_gbps == 0)
    return bad("the rate of the " + which + " must be above 0 GB/s both ways");
  if (!is_rate(link.latency_us)) return bad("the latency of the " + which + " is no time");
  if (link.count == 0) return bad("the " + which + " has a count of 0");
  return {};
}

Status Topology::index_links() {
  hops_.resize(data_.devices.size());
  for (std::uint32_t i = 0; i < data_.links.size(); ++i) {
    const Link& link = data_.links[i];
    if (hop(link.upper, link.lower) != nullptr)
      return bad("two links join " + quoted(device(link.upper).name) + " and " + quoted(device(link.lower).name) +
                 ": give one, with the rate and count of both");
    hops_[link.upper].push_back({link.lower, toward_lower(i)});
    hops_[link.lower].push_back({link.upper, toward_upper(i)});
    const std::string &upper = device(link.upper).name, &lower = device(link.lower).name;
    resources_.push_back({upper + " -> " + lower, link.down_gbps, link.latency_us});
    resources_.push_back({lower + " -> " + upper, link.up_gbps, link.latency_us});
  }
  for (const DeviceId numa : all(DeviceKind::numa)) {
    memory_.emplace(numa, resource_count());
    resources_.push_back({device(numa).name + " memory", device(numa).memory_gbps, 0});
  }
  return {};
}

Status Topology::apply_calibrations() {
  for (const MeasuredRate& record : data_.calibrations) {
    if (record.from >= data_.devices.size() || record.to >= data_.devices.size())
      return bad("a calibration record names a device that does not exist");
    const std::string which =
        "the calibration record from " + quoted(device(record.from).name) + " to " + quoted(device(record.to).name);
    if (!is_rate(record.bandwidth_gbps) || record.bandwidth_gbps == 0 || !is_rate(record.latency_us))
      return bad(which + " has no rate above 0 GB/s");
    std::optional<ResourceId> found = record.from == record.to ? memory_of(record.from) : std::nullopt;
    if (const Hop* direct = hop(record.from, record.to)) found = direct->resource;
    if (!found) return bad(which + " fits no link and no memory");
    resources_[*found].bandwidth_gbps = record.bandwidth_gbps;
    if (record.latency_us > 0) resources_[*found].latency_us = record.latency_us;
  }
  return {};
}

/// Checks that all NUMA nodes of a host can reach one another.
Status Topology::check_reachable() const {
  std::map<DeviceId, DeviceId> first;  // the first NUMA node of each host
  for (const DeviceId numa : all(DeviceKind::numa)) {
    const auto [entry, is_new] = first.emplace(host_[numa], numa);
    std::vector<ResourceId> unused;
    if (!is_new && !route(entry->second, numa, LinkKind::socket, unused))
      return bad("no socket link joins " + quoted(device(entry->second).name) + " and " + quoted(device(numa).name));
  }
  return {};
}

std::vector<DeviceId> Topology::all(DeviceKind kind) const {
  std::vector<DeviceId> found;
  for (DeviceId id = 0; id < data_.devices.size(); ++id)
    if (data_.devices[id].kind == kind) found.push_back(id);
  return found;
}

std::optional<DeviceId> Topology::find(std::string_view device_name) const {
  const auto found = by_name_.find(device_name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<DeviceId> Topology::ranks() const {
  std::vector<DeviceId> gpus = all(DeviceKind::gpu);
  return gpus.empty() ? all(DeviceKind::numa) : gpus;
}

std::optional<ResourceId> Topology::memory_of(DeviceId numa) const {
  const auto found = memory_.find(numa);
  return found == memory_.end() ? std::nullopt : std::optional(found->second);
}

const Topology::Hop* Topology::hop(DeviceId from, DeviceId to) const {
  const auto& hops = hops_[from];
  const auto found = std::find_if(hops.begin(), hops.end(), [&](const Hop& h) { return h.to == to; });
  return found == hops.end() ? nullptr : &*found;
}

}  // namespace strait
