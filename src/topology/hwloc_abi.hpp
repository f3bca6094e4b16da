#pragma once

#include <cstdint>

/// The part of hwloc 2's binary interface (libhwloc.so.15) that is used here: hwloc.h need not be installed where
/// Strait is built, nor the library where it runs. The tests compare it with hwloc.h where that is at hand.
namespace strait::hwloc_abi {

using Topology = struct HwlocTopology*;           ///< hwloc_topology_t
using Bitmap = const struct HwlocBitmap*;         ///< hwloc_const_bitmap_t
inline constexpr unsigned api_major_version = 2;  ///< of hwloc_get_api_version() >> 16

inline constexpr std::int32_t bridge = 14, pci_device = 15;  ///< types of objects
/// Where hwloc_get_obj_by_depth finds these.
inline constexpr int depth_numa = -3, depth_bridge = -4, depth_pci = -5, depth_os_device = -6;

struct PciAttributes {
  std::uint16_t domain;
  std::uint8_t bus, device, function;
  std::uint16_t class_code;
  std::uint16_t vendor, device_id, subsystem_ids[2];
  std::uint8_t revision;
  float link_gbps;  ///< GB/s of all lanes, raw; 0: unknown
};
struct BridgeAttributes {
  PciAttributes upstream;
  std::int32_t upstream_type;
};
inline constexpr std::int32_t upstream_is_pci = 1;  ///< else it joins PCI to the host, and has no address
union Attributes {
  PciAttributes pci;
  BridgeAttributes bridge;
  std::int32_t os_device;
};
inline constexpr std::int32_t os_network = 2, os_verbs = 3;

struct Object {
  std::int32_t type;
  char* subtype;
  unsigned number;  ///< of the operating system
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
  Bitmap numas, complete_numas;  ///< null of bridges and devices
};

inline constexpr unsigned long include_disallowed = 1;  ///< what this process may not use is there all the same
inline constexpr unsigned long leave_out_component = 1;
inline constexpr int keep_important = 3;  ///< bridges with something behind them, and devices of a known kind

}  // namespace strait::hwloc_abi
