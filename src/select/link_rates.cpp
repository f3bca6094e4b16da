#include "select/link_rates.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace strait {
namespace {

/// Returns "gpu3" for "host0/gpu3".
std::string name_within_host(const Topology& topology, DeviceId id) {
  const std::string& full = topology.device(id).name;
  return full.substr(full.find('/') + 1);
}

DeviceId find_within_host(const Topology& topology, const std::string& name) {
  const DeviceId host = topology.all(DeviceKind::host).front();
  return topology.find(topology.device(host).name + "/" + name).value_or(no_device);
}

}  // namespace

std::string topology_fingerprint(const Topology& topology) {
  std::string facts;
  const auto name = [&](DeviceId id) { return id == no_device ? "" : name_within_host(topology, id); };
  for (DeviceId id = 0; id < topology.data().devices.size(); ++id) {
    const Device& device = topology.device(id);
    const bool is_host = device.kind == DeviceKind::host;
    const bool below_host = device.parent == no_device || topology.device(device.parent).kind == DeviceKind::host;
    facts += std::string(strait::name(device.kind)) + "|" + (is_host ? "" : name(id)) + "|" + device.model + "|" +
             device.bus_id + "|" + (below_host ? "" : name(device.parent)) + "\n";
  }
  for (const Link& link : topology.data().links)
    facts += std::string(strait::name(link.kind)) + "|" + name(link.upper) + "|" + name(link.lower) + "|" +
             std::to_string(link.count) + "\n";
  return fingerprint_of(facts);
}

std::vector<LinkRate> link_rates_of(const Topology& topology) {
  std::vector<LinkRate> rates;
  for (const MeasuredRate& rate : topology.data().calibrations)
    if (topology.host_of(rate.from) != no_device && topology.host_of(rate.to) != no_device)
      rates.push_back({name_within_host(topology, rate.from), name_within_host(topology, rate.to), rate.bandwidth_gbps,
                       rate.latency_us, rate.origin});
  return rates;
}

GpuRates known_gpu_rates(const Topology& topology, const KnownRates& known) {
  const auto found = known.gpus.find(topology_fingerprint(topology));
  return found == known.gpus.end() ? GpuRates{} : found->second;
}

Topology with_known_rates(Topology topology, const KnownRates& known) {
  if (topology.all(DeviceKind::host).size() != 1) return topology;
  const auto found = known.links.find(topology_fingerprint(topology));
  if (found == known.links.end() || found->second.empty()) return topology;
  TopologyData data = topology.data();
  for (const LinkRate& rate : found->second)
    data.calibrations.push_back({.from = find_within_host(topology, rate.from),
                                 .to = find_within_host(topology, rate.to),
                                 .bandwidth_gbps = rate.gbps,
                                 .latency_us = rate.us,
                                 .origin = rate.origin});
  data.notes.push_back("rates of the GPUs' links are those that " + known.source + " keeps");
  auto measured = Topology::make(std::move(data));
  if (measured) return std::move(*measured);
  log_warn(-1, "the rates of links in " + known.source + " do not fit this machine: " + measured.error().message +
                   ". They are left out; `strait doctor --calibrate` measures them anew");
  return topology;
}

}  // namespace strait
