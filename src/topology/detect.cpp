#include "topology/detect.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "topology/nvml.hpp"
#include "topology/sysfs.hpp"

namespace strait {
namespace {

std::string host_name() {
  std::array<char, 256> buffer{};
  if (::gethostname(buffer.data(), buffer.size() - 1) != 0 || buffer[0] == '\0') return "host";
  std::string name = buffer.data();
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

/// NVML's list takes the place of PCI's: it has what this process may use, in the order that CUDA's devices have.
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

}  // namespace

Result<Topology> detect(const DetectOptions& options) {
  HostSurvey host = survey_sysfs(options.root);
  host.name = host_name();
  const bool has_gpus = !host.gpus.empty();
  if (!options.nvml_library.empty()) {
    NvmlSurvey nvml = survey_nvml(options.nvml_library);
    // Without a GPU nobody misses the driver.
    if (nvml.answered || has_gpus) adopt(host, std::move(nvml));
  }
  const std::string name = host.name;
  std::vector<HostSurvey> hosts;
  hosts.push_back(std::move(host));
  return assemble(name, std::move(hosts));
}

}  // namespace strait
