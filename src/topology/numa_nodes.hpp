#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace strait {

/// The NUMA node that a PCI device is next to, by sysfs below `root`; nothing where the system does not tell.
std::optional<std::uint32_t> numa_node_of_pci(const std::string& root, std::string_view bus_id);

/// The one NUMA node that all of these CPUs belong to, likewise; nothing where they are of several, or none.
std::optional<std::uint32_t> numa_node_of_cpus(const std::string& root, std::span<const std::uint32_t> cpus);

}  // namespace strait
