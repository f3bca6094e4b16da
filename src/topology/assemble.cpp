#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "topology/survey.hpp"

namespace strait {
namespace {

// Assumed until a calibration replaces them; at the low end of what such machines have.
constexpr double socket_gbps = 20;
constexpr double unknown_pcie_gbps = 10;
constexpr double pcie_efficiency = 0.8;  // headers, flow control, and what copies of GPUs reach in practice
constexpr double pcie_us = 0.3;
constexpr double socket_us = 0.3;
constexpr double nvlink_us = 0.5;
constexpr double network_us = 1.5;

double raw_pcie_gbps(double gigatransfers, std::uint32_t lanes) {
  const double encoding = gigatransfers < 8 ? 0.8 : 128.0 / 130.0;
  return gigatransfers * lanes / 8 * encoding;
}

class Assembler {
 public:
  Result<Topology> run(std::string name, std::vector<HostSurvey> hosts) {
    data_.name = std::move(name);
    const bool networked = std::any_of(hosts.begin(), hosts.end(), [](const HostSurvey& h) { return !h.nics.empty(); });
    // A host may have the name "network", too.
    const bool is_taken =
        std::any_of(hosts.begin(), hosts.end(), [](const HostSurvey& h) { return h.name == "network"; });
    if (networked) network_ = add({.kind = DeviceKind::network_switch, .name = is_taken ? "the network" : "network"});
    for (HostSurvey& host : hosts) {
      const bool several = hosts.size() > 1;
      if (host.name.empty()) host.name = "host" + (several ? std::to_string(&host - hosts.data()) : "");
      for (std::string& note : host.notes) data_.notes.push_back(several ? host.name + ": " + note : std::move(note));
      add_host(host);
    }
    data_.notes.push_back(
        "rates of sockets and links are assumed until `strait doctor --calibrate` measures them; memory is no limit");
    return Topology::make(std::move(data_));
  }

 private:
  DeviceId add(Device device) {
    data_.devices.push_back(std::move(device));
    return static_cast<DeviceId>(data_.devices.size() - 1);
  }
  std::string full(const std::string& own) const { return survey_->name + "/" + own; }

  void add_host(HostSurvey& host) {
    survey_ = &host;
    bridges_.clear();
    numas_.clear();
    gpus_.clear();
    host_ = add({.kind = DeviceKind::host, .name = host.name, .gpudirect = host.gpudirect});
    if (host.numas.empty()) host.numas.push_back({});
    for (const SurveyedNuma& numa : host.numas)
      numas_[numa.number] = add({.kind = DeviceKind::numa,
                                 .name = full("numa" + std::to_string(numa.number)),
                                 .parent = host_,
                                 .cpus = numa.cpus,
                                 .cache_bytes = numa.cache_bytes});
    for (auto a = numas_.begin(); a != numas_.end(); ++a)
      for (auto b = std::next(a); b != numas_.end(); ++b)
        data_.links.push_back({LinkKind::socket, a->second, b->second, socket_gbps, socket_gbps, socket_us, 1, {}});
    for (std::size_t i = 0; i < host.gpus.size(); ++i) {
      const SurveyedGpu& gpu = host.gpus[i];
      gpus_.push_back(plug(
          {.kind = DeviceKind::gpu, .name = full("gpu" + std::to_string(i)), .model = gpu.model, .bus_id = gpu.bus_id},
          -1));
    }
    std::set<std::string> names;
    for (const SurveyedNic& nic : host.nics) {
      if (!names.insert(nic.name).second) continue;  // another port of the same card
      const DeviceId id =
          plug({.kind = DeviceKind::nic, .name = full(nic.name), .model = nic.model, .bus_id = nic.bus_id}, nic.numa);
      if (nic.gbps > 0)
        data_.links.push_back({LinkKind::network, network_, id, nic.gbps, nic.gbps, network_us, nic.ports, {}});
    }
    join_nvlinks();
    settle_p2p();
  }

  DeviceId numa_at(std::int32_t number) const {
    const auto found = numas_.find(number);
    return found == numas_.end() ? numas_.begin()->second : found->second;
  }

  /// Adds a GPU or NIC below its bridges.
  DeviceId plug(Device device, std::int32_t numa) {
    const auto function = survey_->pci.find(device.bus_id);
    if (function == survey_->pci.end()) {
      device.parent = numa_at(numa);
      const DeviceId parent = device.parent;
      const bool on_pcie = !device.bus_id.empty();
      const DeviceId id = add(std::move(device));
      if (on_pcie) link_to(parent, id, {});
      return id;
    }
    const PciFunction& own = function->second;
    device.parent = bridge(own.parent_bus_id, own.numa >= 0 ? own.numa : numa, 0).id;
    const DeviceId parent = device.parent;
    const DeviceId id = add(std::move(device));
    link_to(parent, id, own.width);
    return id;
  }

  void link_to(DeviceId parent, DeviceId id, const PcieWidth& width) {
    double gbps = pcie_gbps(width);
    if (gbps == 0) {
      gbps = unknown_pcie_gbps;
      data_.notes.push_back("the PCIe speed of " + data_.devices[id].name + " is unknown: assumed " +
                            std::to_string(static_cast<int>(gbps)) + " GB/s");
    }
    data_.links.push_back({LinkKind::pcie, parent, id, gbps, gbps, pcie_us, 1, width});
  }

  struct Bridge {
    DeviceId id;          ///< for a downstream port, its switch
    std::size_t ordinal;  ///< number of bridges from the root complex down to this one, which counts: 1 for a root port
  };

  /// Adds a bridge and those above it, each once. Below a root port, upstream and downstream ports alternate. A switch
  /// is represented by its upstream port; its downstream ports belong to it.
  Bridge bridge(const std::string& bus_id, std::int32_t numa, std::size_t depth) {
    constexpr std::size_t deepest = 64;  // no real tree is deeper, so more is a cycle
    const auto function = survey_->pci.find(bus_id);
    if (function == survey_->pci.end() || depth > deepest) return {numa_at(numa), 0};
    if (const auto known = bridges_.find(bus_id); known != bridges_.end()) return known->second;
    const PciFunction& own = function->second;
    const Bridge above = bridge(own.parent_bus_id, own.numa >= 0 ? own.numa : numa, depth + 1);
    Bridge result{above.id, above.ordinal + 1};
    const bool is_port = survey_->lists_switch_ports && above.ordinal >= 2 && above.ordinal % 2 == 0;
    if (is_port) {
      data_.devices[above.id].acs |= own.acs;
    } else {
      const bool is_root = survey_->lists_switch_ports && above.ordinal == 0;
      result.id = add({.kind = is_root ? DeviceKind::root_port : DeviceKind::pcie_switch,
                       .name = full((is_root ? "port-" : "switch-") + bus_id),
                       .parent = above.id,
                       .bus_id = bus_id,
                       .acs = own.acs});
      link_to(above.id, result.id, own.width);
    }
    bridges_.emplace(bus_id, result);
    return result;
  }

  /// Joins all NVLinks between two GPUs into one link, and all NVLink switches of a host into one device.
  void join_nvlinks() {
    std::map<std::string, std::size_t> index;
    for (std::size_t i = 0; i < survey_->gpus.size(); ++i) index[survey_->gpus[i].bus_id] = i;
    struct Bundle {
      std::uint32_t count = 0;
      double gbps = 0;
    };
    std::map<std::pair<std::size_t, std::size_t>, Bundle> pairs;  // (own, remote); remote == gpus.size(): the switch
    const std::size_t to_switch = survey_->gpus.size();
    for (std::size_t i = 0; i < survey_->gpus.size(); ++i)
      for (const NvlinkEnd& end : survey_->gpus[i].nvlinks) {
        const auto remote = index.find(end.remote_bus_id);
        Bundle& bundle = pairs[{i, remote == index.end() ? to_switch : remote->second}];
        ++bundle.count;
        bundle.gbps += end.gbps > 0 ? end.gbps : nvlink_gbps(survey_->gpus[i].capability);
      }
    DeviceId nvswitch = no_device;
    for (const auto& [pair, bundle] : pairs) {
      const auto [own, remote] = pair;
      if (remote == to_switch && nvswitch == no_device)
        nvswitch = add({.kind = DeviceKind::nvswitch, .name = full("nvswitch"), .parent = host_});
      if (remote != to_switch) {
        const auto back = pairs.find({remote, own});
        if (back == pairs.end() || back->second.count != bundle.count)
          data_.notes.push_back("gpu" + std::to_string(own) + " counts " + std::to_string(bundle.count) +
                                " NVLinks to gpu" + std::to_string(remote) + ", which counts " +
                                std::to_string(back == pairs.end() ? 0 : back->second.count) + " back");
        if (remote == own || (back != pairs.end() && remote < own)) continue;  // the other end has listed this link
      }
      data_.links.push_back({LinkKind::nvlink,
                             remote == to_switch ? nvswitch : gpus_[remote],
                             gpus_[own],
                             bundle.gbps,
                             bundle.gbps,
                             nvlink_us,
                             bundle.count,
                             {}});
    }
  }

  /// Returns the status that the driver reports, or what on PCIe prevents P2P nevertheless: ACS in a bridge, or the
  /// IOMMU.
  P2pStatus status_of(std::size_t a, std::size_t b) const {
    const auto found = survey_->p2p.find({a, b});
    const P2pStatus said = found == survey_->p2p.end() ? P2pStatus::unknown : found->second;
    if (said != P2pStatus::ok) return said;
    std::set<DeviceId> above;
    for (DeviceId id = gpus_[a]; id != no_device; id = data_.devices[id].parent) above.insert(id);
    DeviceId common = gpus_[b];
    while (!above.contains(common)) common = data_.devices[common].parent;
    const Device& meets = data_.devices[common];
    if (meets.kind == DeviceKind::pcie_switch && meets.acs) return P2pStatus::acs;
    const auto translated = [&](std::size_t i) {
      const auto function = survey_->pci.find(survey_->gpus[i].bus_id);
      return function != survey_->pci.end() && function->second.translated;
    };
    return translated(a) || translated(b) ? P2pStatus::iommu : P2pStatus::ok;
  }

  bool nvlinked(std::size_t a, std::size_t b) const {
    const auto reaches = [&](std::size_t gpu, DeviceId end) {
      return std::any_of(data_.links.begin(), data_.links.end(), [&](const Link& link) {
        return link.kind == LinkKind::nvlink &&
               ((link.lower == gpus_[gpu] && link.upper == end) || (link.upper == gpus_[gpu] && link.lower == end));
      });
    };
    const DeviceId last =
        data_.devices.back().kind == DeviceKind::nvswitch ? static_cast<DeviceId>(data_.devices.size() - 1) : no_device;
    return reaches(a, gpus_[b]) || (last != no_device && reaches(a, last) && reaches(b, last));
  }

  void settle_p2p() {
    std::map<std::pair<std::size_t, std::size_t>, P2pStatus> over_pcie;
    std::map<P2pStatus, std::size_t> votes;
    for (std::size_t a = 0; a < gpus_.size(); ++a)
      for (std::size_t b = 0; b < gpus_.size(); ++b) {
        if (a == b) continue;
        const auto said = survey_->p2p.find({a, b});
        if (!nvlinked(a, b)) {
          ++votes[over_pcie[{a, b}] = status_of(a, b)];
        } else if (said != survey_->p2p.end() && said->second != P2pStatus::ok && said->second != P2pStatus::unknown) {
          data_.p2p[{gpus_[a], gpus_[b]}] = said->second;
        }
      }
    P2pStatus& usual = data_.devices[host_].p2p;
    std::size_t most = 0;
    for (const auto& [status, count] : votes)
      if (count > most) usual = status, most = count;
    for (const auto& [pair, status] : over_pcie)
      if (status != usual) data_.p2p[{gpus_[pair.first], gpus_[pair.second]}] = status;
  }

  TopologyData data_;
  DeviceId network_ = no_device;
  const HostSurvey* survey_ = nullptr;  ///< the host that is being added, as the members below
  DeviceId host_ = no_device;
  std::map<std::int32_t, DeviceId> numas_;
  std::map<std::string, Bridge> bridges_;
  std::vector<DeviceId> gpus_;
};

}  // namespace

Result<Topology> assemble(std::string name, std::vector<HostSurvey> hosts) {
  return Assembler().run(std::move(name), std::move(hosts));
}

std::string normal_bus_id(std::string_view text) {
  unsigned parts[4] = {};  // domain, bus, device, function
  const std::string copy(text);
  int used = 0;
  const char* begin = copy.c_str();
  if (std::sscanf(begin, "%8x:%2x:%2x.%1x%n", &parts[0], &parts[1], &parts[2], &parts[3], &used) != 4) {
    used = 0;
    parts[0] = 0;
    if (std::sscanf(begin, "%2x:%2x.%1x%n", &parts[1], &parts[2], &parts[3], &used) != 3) return "";
  }
  if (static_cast<std::size_t>(used) != copy.size()) return "";
  char normal[32];
  std::snprintf(normal, sizeof normal, "%04x:%02x:%02x.%x", parts[0], parts[1], parts[2], parts[3]);
  return normal;
}

double pcie_gbps(const PcieWidth& width) {
  // Idle GPUs reduce the speed of their links, but not the width.
  const double speed = std::max(width.gigatransfers, width.most_gigatransfers);
  const std::uint32_t lanes = width.lanes > 0 ? width.lanes : width.most_lanes;
  const double gbps = raw_pcie_gbps(speed, lanes) * pcie_efficiency;
  return static_cast<double>(std::lround(gbps * 100)) / 100;
}

PcieWidth pcie_width_of(double raw_gbps) {
  constexpr double tolerance = 0.03;
  for (const double transfers : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0})
    for (const std::uint32_t lanes : {16U, 8U, 4U, 2U, 1U})
      if (const double raw = raw_pcie_gbps(transfers, lanes); std::abs(raw_gbps - raw) < tolerance * raw)
        return {transfers, lanes, 0, 0};
  return {};
}

double nvlink_gbps(std::uint32_t capability) {
  if (capability >= 100) return 50;
  if (capability == 86) return 14;
  if (capability >= 70 || capability == 0) return 25;
  return 20;
}

}  // namespace strait
