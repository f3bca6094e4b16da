#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace strait {

/// Returns the NUMA node nearest to a PCI device, from sysfs below `root`; nullopt if the system does not tell.
std::optional<std::uint32_t> numa_node_of_pci(const std::string& root, std::string_view bus_id);

/// Returns the one NUMA node that holds all of these CPUs, from sysfs below `root`; nullopt if no node does.
std::optional<std::uint32_t> numa_node_of_cpus(const std::string& root, std::span<const std::uint32_t> cpus);

}  // namespace strait
