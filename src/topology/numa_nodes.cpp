#include "topology/numa_nodes.hpp"

#include <algorithm>
#include <vector>

#include "topology/survey.hpp"
#include "topology/sysfs_files.hpp"

namespace strait {

std::optional<std::uint32_t> numa_node_of_pci(const std::string& root, std::string_view bus_id) {
  const auto node =
      SysDirectory(root + "/sys/bus/pci/devices").sub(normal_bus_id(bus_id)).number("numa_node").value_or(-1);
  if (node < 0) return std::nullopt;
  return static_cast<std::uint32_t>(node);
}

std::optional<std::uint32_t> numa_node_of_cpus(const std::string& root, std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return std::nullopt;
  const SysDirectory nodes(root + "/sys/devices/system/node");
  for (const std::string& name : nodes.names()) {
    const auto node = numbered(name, "node");
    if (!node) continue;
    const std::vector<std::uint32_t> own = parse_cpu_list(nodes.sub(name).line("cpulist"));
    const auto has = [&](std::uint32_t cpu) { return std::find(own.begin(), own.end(), cpu) != own.end(); };
    if (std::all_of(cpus.begin(), cpus.end(), has)) return node;
  }
  return std::nullopt;
}

}  // namespace strait
