#include "topology/detect.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/host_name.hpp"
#include "topology/hwloc.hpp"
#include "topology/nvml.hpp"
#include "topology/sysfs.hpp"
#include "topology/verbs.hpp"

namespace strait {
namespace {

/// Merges a PCI function that hwloc knows. Its location is taken from hwloc, and from sysfs if hwloc does not know it.
/// Its speed and width are taken from sysfs, which also tells the best possible ones, and from hwloc if sysfs does not
/// know them.
void adopt(HostSurvey& host, PciFunction function) {
  const auto known = host.pci.find(function.bus_id);
  if (known == host.pci.end()) {
    if (function.is_gpu()) host.gpus.push_back({.bus_id = function.bus_id});
    host.pci.emplace(function.bus_id, std::move(function));
    return;
  }
  if (!function.parent_bus_id.empty()) known->second.parent_bus_id = function.parent_bus_id;
  if (function.numa >= 0) known->second.numa = function.numa;
  if (pcie_gbps(known->second.width) == 0) known->second.width = function.width;
}

void adopt(HostSurvey& host, HwlocSurvey hwloc) {
  host.notes.insert(host.notes.end(), hwloc.notes.begin(), hwloc.notes.end());
  if (!hwloc.answered) return;
  for (SurveyedNuma& numa : hwloc.numas)
    for (const SurveyedNuma& known : host.numas)
      if (known.number == numa.number) numa.cache_bytes = known.cache_bytes;
  host.numas = std::move(hwloc.numas);
  for (auto& [bus_id, function] : hwloc.pci) adopt(host, std::move(function));
  for (SurveyedNic& nic : host.nics)
    for (const SurveyedNic& placed : hwloc.nics) {
      if (nic.name != placed.name) continue;
      if (!placed.bus_id.empty()) nic.bus_id = placed.bus_id;
      if (placed.numa >= 0) nic.numa = placed.numa;
    }
}

/// Replaces the list of GPUs from PCI by NVML's, which holds those that this process may use, in the order of CUDA's
/// devices.
void adopt(HostSurvey& host, NvmlSurvey nvml) {
  host.notes.insert(host.notes.end(), nvml.notes.begin(), nvml.notes.end());
  if (!nvml.answered) return;
  std::set<std::string> usable;
  for (const SurveyedGpu& gpu : nvml.gpus) {
    usable.insert(gpu.bus_id);
    if (!gpu.bus_id.empty() && !host.pci.contains(gpu.bus_id))
      host.notes.push_back("GPU " + gpu.bus_id +
                           " is not in /sys/bus/pci: a container hides it; where it is plugged in is unknown");
  }
  for (const SurveyedGpu& gpu : host.gpus)
    if (!usable.contains(gpu.bus_id))
      host.notes.push_back("GPU " + gpu.bus_id +
                           " is left out: NVML does not list it (it belongs to another container " +
                           "or virtual machine, or has failed: see the kernel log for Xid)");
  host.gpus = std::move(nvml.gpus);
  host.p2p = std::move(nvml.p2p);
}

/// Replaces what sysfs tells about the ports of a card by what libibverbs tells.
void adopt(HostSurvey& host, const SurveyedHca& hca) {
  auto nic = std::find_if(host.nics.begin(), host.nics.end(), [&](const SurveyedNic& n) { return n.name == hca.name; });
  if (nic == host.nics.end()) {
    host.notes.push_back(hca.name + " is not in /sys/class/infiniband: where it is plugged in is unknown");
    nic = host.nics.insert(host.nics.end(), {.name = hca.name, .model = "RDMA", .rdma = true});
  }
  double gbps = 0;
  std::uint32_t active = 0;
  bool all_tell = true;
  for (const SurveyedPort& port : hca.ports) {
    if (!port.active) continue;
    ++active;
    gbps += port.gbps;
    all_tell = all_tell && port.gbps > 0;
    const SurveyedGid* gid = port.best_gid();
    const std::string name = hca.name + " port " + std::to_string(port.number);
    if (port.has_gids && gid == nullptr)
      host.notes.push_back(name + " has no GID in use: RDMA cannot use it" +
                           (port.is_ethernet() ? ". Give its interface an IP address" : ""));
    else if (gid != nullptr && port.is_ethernet() && gid->type == GidType::roce_v1)
      host.notes.push_back(name + " has GIDs of RoCE v1 only: it reaches no other subnet. Give it an IP address");
  }
  if (active > 0 && all_tell) nic->gbps = gbps, nic->ports = active;
}

void adopt(HostSurvey& host, const VerbsSurvey& verbs) {
  host.notes.insert(host.notes.end(), verbs.notes.begin(), verbs.notes.end());
  for (const SurveyedHca& hca : verbs.hcas) adopt(host, hca);
  for (const SurveyedNic& nic : host.nics)
    if (nic.rdma && verbs.answered && verbs.find(nic.name) == nullptr)
      host.notes.push_back(
          nic.name + " is in /sys, but libibverbs does not list it: its driver's library (ibverbs-providers) or " +
          "/dev/infiniband is missing; RDMA cannot use it");
}

}  // namespace

Result<Topology> detect(const DetectOptions& options) {
  HostSurvey host = survey_sysfs(options.root);
  host.name = host_name();
  std::replace(host.name.begin(), host.name.end(), '/', '-');
  if (!options.hwloc_library.empty()) adopt(host, survey_hwloc(options.hwloc_library));
  const bool has_gpus = !host.gpus.empty();
  if (!options.nvml_library.empty()) {
    NvmlSurvey nvml = survey_nvml(options.nvml_library);
    // Without a GPU, a missing driver is not worth a note.
    if (nvml.answered || has_gpus) adopt(host, std::move(nvml));
  }
  if (!options.verbs_library.empty()) {
    const bool has_hcas =
        std::any_of(host.nics.begin(), host.nics.end(), [](const SurveyedNic& nic) { return nic.rdma; });
    const VerbsSurvey verbs = survey_verbs(options.verbs_library);
    // Without an RDMA card, a missing libibverbs is not worth a note.
    if (has_hcas || !verbs.hcas.empty()) adopt(host, verbs);
  }
  const std::string name = host.name;
  std::vector<HostSurvey> hosts;
  hosts.push_back(std::move(host));
  return assemble(name, std::move(hosts));
}

}  // namespace strait
