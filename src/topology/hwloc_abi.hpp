#pragma once

#include <cstdint>

/// The part of hwloc 2's binary interface (libhwloc.so.15) that Strait uses. So hwloc.h need not be installed where
/// Strait is built, nor the library where it runs. The tests compare this with hwloc.h if that is installed.
namespace strait::hwloc_abi {

using Topology = struct HwlocTopology*;           ///< hwloc_topology_t
using Bitmap = const struct HwlocBitmap*;         ///< hwloc_const_bitmap_t
inline constexpr unsigned api_major_version = 2;  ///< hwloc_get_api_version() >> 16

inline constexpr std::int32_t bridge = 14, pci_device = 15;  ///< object types
/// The depths at which hwloc_get_obj_by_depth finds objects of these kinds.
inline constexpr int depth_numa = -3, depth_bridge = -4, depth_pci = -5, depth_os_device = -6;

struct PciAttributes {
  std::uint16_t domain;
  std::uint8_t bus, device, function;
  std::uint16_t class_code;
  std::uint16_t vendor, device_id, subsystem_ids[2];
  std::uint8_t revision;
  float link_gbps;  ///< of all lanes together in GB/s, raw; 0: unknown
};
struct BridgeAttributes {
  PciAttributes upstream;
  std::int32_t upstream_type;
};
inline constexpr std::int32_t upstream_is_pci = 1;  ///< otherwise the bridge joins PCI to the host, and has no address
union Attributes {
  PciAttributes pci;
  BridgeAttributes bridge;
  std::int32_t os_device;
};
inline constexpr std::int32_t os_network = 2, os_verbs = 3;

struct Object {
  std::int32_t type;
  char* subtype;
  unsigned number;  ///< os_index: the operating system's number
  char* name;
  std::uint64_t memory_bytes;
  Attributes* attributes;
  int depth;
  unsigned logical_index;
  Object *next_cousin, *previous_cousin, *parent;
  unsigned sibling_rank;
  Object *next_sibling, *previous_sibling;
  unsigned arity;
  Object **children, *first_child, *last_child;
  int is_symmetric;
  unsigned memory_arity;
  Object* first_memory_child;
  unsigned io_arity;
  Object* first_io_child;
  unsigned misc_arity;
  Object* first_misc_child;
  Bitmap cpus, complete_cpus;
  Bitmap numas, complete_numas;  ///< null for bridges and devices
};

/// Topology flag: objects that this process may not use are included.
inline constexpr unsigned long include_disallowed = 1;
inline constexpr unsigned long leave_out_component = 1;
/// I/O filter: bridges with a device behind them, and devices of a known kind.
inline constexpr int keep_important = 3;

}  // namespace strait::hwloc_abi
