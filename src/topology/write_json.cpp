#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "topology/json.hpp"

namespace strait {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
void set_unless(Json& json, const char* key, const T& value, const T& usual) {
  if (value != usual) json[key] = value;
}

class Writer {
 public:
  explicit Writer(const Topology& topology) : topology_(topology), data_(topology.data()) {}

  std::string write() {
    Json file{{"strait_topology", 1}, {"name", data_.name}};
    if (!data_.notes.empty()) file["notes"] = data_.notes;
    for (std::uint32_t i = 0; i < data_.links.size(); ++i)
      if (data_.links[i].kind == LinkKind::pcie) uplinks_[data_.links[i].lower] = i;
    for (DeviceId id = 0; id < data_.devices.size(); ++id) write_device(id);
    for (const Link& link : data_.links)
      if (link.kind != LinkKind::pcie) write_link(link);
    for (const auto& [pair, status] : data_.p2p) {
      Json entry{{"from", relative(pair.first, pair.first)}, {"to", relative(pair.second, pair.first)}};
      entry["status"] = name(status);
      section(topology_.host_of(pair.first))["p2p_pairs"].push_back(std::move(entry));
    }
    for (const MeasuredRate& record : data_.calibrations) write_calibration(record);
    for (auto& item : outside_.items()) file[item.key()] = item.value();
    for (const DeviceId host : topology_.all(DeviceKind::host)) file["hosts"].push_back(hosts_.at(host));
    // json_text() replaces invalid UTF-8: names from the system and from XML may be in any encoding.
    return json_text(file);
  }

 private:
  Json& section(DeviceId host) { return host == no_device ? outside_ : hosts_.at(host); }

  /// Returns a device's name relative to the host of `beside`.
  std::string relative(DeviceId id, DeviceId beside) const {
    const std::string& full = data_.devices[id].name;
    const DeviceId host = topology_.host_of(beside);
    if (host == no_device) return full;
    if (topology_.host_of(id) != host) return "/" + full;
    return full.substr(data_.devices[host].name.size() + 1);
  }

  void write_device(DeviceId id) {
    const Device& device = data_.devices[id];
    if (device.kind == DeviceKind::host) {
      Json host{{"name", device.name}};
      set_unless(host, "model", device.model, {});
      set_unless(host, "gpudirect", device.gpudirect, false);
      host["p2p"] = name(device.p2p);
      hosts_.emplace(id, std::move(host));
      return;
    }
    Json json{{"name", relative(id, id)}, {"kind", name(device.kind)}};
    if (device.parent != topology_.host_of(id)) json["parent"] = relative(device.parent, id);
    set_unless(json, "model", device.model, {});
    set_unless(json, "bus_id", device.bus_id, {});
    set_unless(json, "cpus", device.cpus, {});
    set_unless(json, "memory_gbps", device.memory_gbps, 0.0);
    set_unless(json, "cache_bytes", device.cache_bytes, std::uint64_t{0});
    set_unless(json, "acs", device.acs, false);
    if (const auto uplink = uplinks_.find(id); uplink != uplinks_.end()) {
      const Link& link = data_.links[uplink->second];
      Json pcie = rates(link);
      set_unless(pcie, "gt_s", link.pcie.gigatransfers, 0.0);
      set_unless(pcie, "lanes", link.pcie.lanes, 0U);
      set_unless(pcie, "max_gt_s", link.pcie.most_gigatransfers, 0.0);
      set_unless(pcie, "max_lanes", link.pcie.most_lanes, 0U);
      json["link"] = std::move(pcie);
    }
    section(topology_.host_of(id))["devices"].push_back(std::move(json));
  }

  static Json rates(const Link& link) {
    Json json = Json::object();
    if (link.up_gbps == link.down_gbps)
      json["gbps"] = link.up_gbps;
    else
      json["gbps"] = {{"up", link.up_gbps}, {"down", link.down_gbps}};
    set_unless(json, "us", link.latency_us, 0.0);
    set_unless(json, "count", link.count, 1U);
    return json;
  }

  void write_link(const Link& link) {
    const DeviceId beside = topology_.host_of(link.lower) != no_device ? link.lower : link.upper;
    Json json{{"kind", name(link.kind)}, {"from", relative(link.lower, beside)}, {"to", relative(link.upper, beside)}};
    json.update(rates(link));
    section(topology_.host_of(beside))["links"].push_back(std::move(json));
  }

  void write_calibration(const MeasuredRate& record) {
    const DeviceId beside = topology_.host_of(record.from) != no_device ? record.from : record.to;
    Json json{
        {"from", relative(record.from, beside)}, {"to", relative(record.to, beside)}, {"gbps", record.bandwidth_gbps}};
    set_unless(json, "us", record.latency_us, 0.0);
    json["origin"] = record.origin;
    section(topology_.host_of(beside))["calibration"].push_back(std::move(json));
  }

  const Topology& topology_;
  const TopologyData& data_;
  std::map<DeviceId, std::uint32_t> uplinks_;  ///< index of the PCIe link of each device to its parent
  Json outside_ = Json::object();
  std::map<DeviceId, Json> hosts_;
};

}  // namespace

std::string to_json(const Topology& topology) { return Writer(topology).write(); }

}  // namespace strait
