// A fake hwloc library. Its machine has two NUMA nodes, 0 (CPUs 0-3) and 1 (CPUs 4-7). Node 1 has a root port,
// 0000:40:01.0, behind it a GPU, 0000:41:00.0, with 16 lanes of PCIe 4, and beside it the NIC eth0, 0000:40:02.0.
// Builds:
//   FAKE_SPARSE: lacks some functions.     FAKE_OLD: it is hwloc 1.       FAKE_FAILING: it cannot load.
//   FAKE_ELSEWHERE: for another machine.   FAKE_EMPTY: has no objects.    FAKE_VAGUE: devices are at both nodes.
#include <cerrno>
#include <cstdio>

#include "topology/hwloc_abi.hpp"

namespace strait::hwloc_abi {
struct HwlocBitmap {  // a range of CPUs or NUMA nodes, first to last
  int first, last;
};
struct HwlocTopology {
  bool is_loaded, whole, with_devices;
};
}  // namespace strait::hwloc_abi

namespace {
using namespace strait::hwloc_abi;
HwlocTopology machine{};
[[maybe_unused]] constexpr HwlocBitmap cpus[] = {{0, 3}, {4, 7}}, nodes[] = {{0, 0}, {1, 1}, {0, 1}};
[[maybe_unused]] Object package{}, numas[2]{}, host_bridge{}, root_port{}, gpu{}, nic{}, eth0{}, disk{};
[[maybe_unused]] Attributes host_bridge_is{}, root_port_is{}, gpu_is{}, nic_is{}, eth0_is{}, disk_is{};
char eth0_name[] = "eth0", disk_name[] = "sda";

[[maybe_unused]] void build() {
  for (int i = 0; i < 2; ++i) numas[i] = {.number = static_cast<unsigned>(i), .cpus = &cpus[i], .numas = &nodes[i]};
#ifdef FAKE_VAGUE
  package = {.numas = &nodes[2]};
#else
  package = {.numas = &nodes[1]};
#endif
  host_bridge_is.bridge = {};
  host_bridge = {.type = bridge, .attributes = &host_bridge_is, .parent = &package};
  root_port_is.bridge = {.upstream = {.bus = 0x40, .device = 1, .class_code = 0x0604, .vendor = 0x8086},
                         .upstream_type = upstream_is_pci};
  root_port = {.type = bridge, .attributes = &root_port_is, .parent = &host_bridge};
  gpu_is.pci = {.bus = 0x41, .class_code = 0x0302, .vendor = 0x10de, .link_gbps = 31.5F};
  gpu = {.type = pci_device, .attributes = &gpu_is, .parent = &root_port};
  nic_is.pci = {.bus = 0x40, .device = 2, .class_code = 0x0200, .vendor = 0x8086};
  nic = {.type = pci_device, .attributes = &nic_is, .parent = &host_bridge};
  eth0_is.os_device = os_network;
  eth0 = {.name = eth0_name, .attributes = &eth0_is, .parent = &nic};
  disk = {.name = disk_name, .attributes = &disk_is, .parent = &host_bridge};
}

template <unsigned size>
Object* pick(Object* const (&objects)[size], unsigned index) {
  return index < size ? objects[index] : nullptr;
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT unsigned hwloc_get_api_version() {
#ifdef FAKE_OLD
  return 0x00010b00;
#else
  return 0x00020900;
#endif
}
EXPORT int hwloc_topology_init(Topology* topology) {
  machine = {};
  return *topology = &machine, 0;
}
EXPORT void hwloc_topology_destroy(Topology) {}
EXPORT int hwloc_topology_set_flags(Topology topology, unsigned long flags) {
  return topology->whole = flags == include_disallowed, 0;
}
EXPORT int hwloc_topology_set_io_types_filter(Topology topology, int filter) {
  return topology->with_devices = filter == keep_important, 0;
}
EXPORT int hwloc_topology_set_components(Topology, unsigned long, const char*) { return 0; }
EXPORT int hwloc_topology_is_thissystem(Topology) {
#ifdef FAKE_ELSEWHERE
  return 0;
#else
  return 1;
#endif
}
#ifndef FAKE_SPARSE
EXPORT int hwloc_topology_load([[maybe_unused]] Topology topology) {
#ifdef FAKE_FAILING
  errno = EINVAL;
  return -1;
#else
#ifndef FAKE_EMPTY
  build();
#endif
  topology->is_loaded = topology->whole && topology->with_devices;
  return 0;
#endif
}
#endif
EXPORT Object* hwloc_get_obj_by_depth(Topology topology, [[maybe_unused]] int depth, [[maybe_unused]] unsigned index) {
  if (!topology->is_loaded) return nullptr;
#ifndef FAKE_EMPTY
  if (depth == depth_numa) return pick<2>({&numas[0], &numas[1]}, index);
  if (depth == depth_bridge) return pick<2>({&host_bridge, &root_port}, index);
  if (depth == depth_pci) return pick<2>({&gpu, &nic}, index);
  if (depth == depth_os_device) return pick<2>({&disk, &eth0}, index);
#endif
  return nullptr;
}
EXPORT int hwloc_bitmap_list_snprintf(char* text, std::size_t size, Bitmap bitmap) {
  return std::snprintf(text, size, "%d-%d", bitmap->first, bitmap->last);
}
EXPORT int hwloc_bitmap_first(Bitmap bitmap) { return bitmap->first; }
EXPORT int hwloc_bitmap_weight(Bitmap bitmap) { return bitmap->last - bitmap->first + 1; }
