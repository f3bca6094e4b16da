#include <array>

#include "base/enum_names.hpp"
#include "topology/topology.hpp"

namespace strait {
namespace {

constexpr std::array<std::string_view, device_kind_count> device_kinds{"host", "numa", "root_port", "pcie_switch",
                                                                       "gpu",  "nic",  "nvswitch",  "network_switch"};
constexpr std::array<std::string_view, link_kind_count> link_kinds{"pcie", "nvlink", "socket", "network"};
constexpr std::array<std::string_view, 7> path_kinds{"self", "NVLINK", "PCIE", "HOST", "SOCKET", "NET", "none"};

struct StatusText {
  std::string_view name;
  std::string_view meaning;
};
constexpr std::array<StatusText, p2p_status_count> statuses{{
    {"OK", "P2P works"},
    {"CNS", "the chipset or a consumer GPU's driver does not support P2P; data goes through host memory"},
    {"TNS", "the PCIe root complexes between the GPUs do not forward to one another; data goes through host memory"},
    {"GNS", "a GPU does not support P2P; data goes through host memory"},
    {"disabled",
     "P2P is switched off in the driver's configuration (registry key, NVreg_ option); remove that to gain it"},
    {"NS", "the driver does not support P2P here, and does not say why; data goes through host memory"},
    {"ACS", "a PCIe bridge redirects peer traffic upwards; switch ACS off in the BIOS or with setpci to gain P2P"},
    {"IOMMU", "the IOMMU translates addresses between peers; boot with iommu=pt or switch it off to gain P2P"},
    {"unknown", "neither driver nor file says whether P2P works, so that data goes through host memory"},
}};

}  // namespace

std::string_view name(DeviceKind kind) { return device_kinds[static_cast<std::size_t>(kind)]; }
std::string_view name(LinkKind kind) { return link_kinds[static_cast<std::size_t>(kind)]; }
std::string_view name(PathKind kind) { return path_kinds[static_cast<std::size_t>(kind)]; }
std::string_view name(P2pStatus status) { return statuses[static_cast<std::size_t>(status)].name; }
std::string_view explain(P2pStatus status) { return statuses[static_cast<std::size_t>(status)].meaning; }

std::optional<DeviceKind> device_kind_of(std::string_view text) {
  return from_name<DeviceKind>(text, device_kind_count);
}
std::optional<LinkKind> link_kind_of(std::string_view text) { return from_name<LinkKind>(text, link_kind_count); }
std::optional<P2pStatus> p2p_status_of(std::string_view text) { return from_name<P2pStatus>(text, p2p_status_count); }

}  // namespace strait
