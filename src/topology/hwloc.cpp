#include "topology/hwloc.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/shared_library.hpp"
#include "topology/hwloc_abi.hpp"

namespace strait {
namespace {

using hwloc_abi::Bitmap;
using hwloc_abi::Object;

struct Symbols {
  unsigned (*version)() = nullptr;
  int (*init)(hwloc_abi::Topology*) = nullptr;
  void (*destroy)(hwloc_abi::Topology) = nullptr;
  int (*set_flags)(hwloc_abi::Topology, unsigned long) = nullptr;
  int (*set_io_filter)(hwloc_abi::Topology, int) = nullptr;
  int (*set_components)(hwloc_abi::Topology, unsigned long, const char*) = nullptr;
  int (*load)(hwloc_abi::Topology) = nullptr;
  int (*is_this_system)(hwloc_abi::Topology) = nullptr;
  Object* (*object)(hwloc_abi::Topology, int, unsigned) = nullptr;
  int (*print_list)(char*, std::size_t, Bitmap) = nullptr;
  int (*first)(Bitmap) = nullptr;
  int (*weight)(Bitmap) = nullptr;
};

struct Destroy {
  void (*destroy)(hwloc_abi::Topology) = nullptr;
  void operator()(hwloc_abi::Topology topology) const { destroy(topology); }
};

std::string reason() { return errno != 0 ? std::strerror(errno) : "no reason given"; }

std::string bus_id_of(const hwloc_abi::PciAttributes& pci) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.device, pci.function);
  return text.data();
}

/// Returns the PCI address of an object; null if it has none.
const hwloc_abi::PciAttributes* address_of(const Object& object) {
  if (object.attributes == nullptr) return nullptr;
  if (object.type == hwloc_abi::pci_device) return &object.attributes->pci;
  const bool is_pci_bridge =
      object.type == hwloc_abi::bridge && object.attributes->bridge.upstream_type == hwloc_abi::upstream_is_pci;
  return is_pci_bridge ? &object.attributes->bridge.upstream : nullptr;
}

/// Returns the address of the PCI function that is this object or the nearest one above it; "" at the root complex.
std::string bus_id_at(const Object* object) {
  for (; object != nullptr; object = object->parent)
    if (const auto* pci = address_of(*object)) return bus_id_of(*pci);
  return "";
}

class Hwloc {
 public:
  explicit Hwloc(const std::string& library) : library_(library) {
    if (!library_.is_loaded()) {
      note("hwloc cannot be loaded: " + library_.problem() +
           ". Where devices are plugged in is only what /sys says. Install libhwloc15");
      return;
    }
    bind_all();
    if (!library_.missing().empty()) {
      note(library + " lacks functions that every hwloc 2 has (" + library_.missing() + "): it is not used");
      return;
    }
    if (const unsigned major = calls_.version() >> 16; major != hwloc_abi::api_major_version) {
      note(library + " is hwloc " + std::to_string(major) + "; only version 2 is known here: it is not used");
      return;
    }
    if (load()) describe();
  }

  HwlocSurvey take() { return std::move(survey_); }

 private:
  void note(std::string text) { survey_.notes.push_back(std::move(text)); }

  void bind_all() {
    library_.need(calls_.version, "hwloc_get_api_version");
    library_.need(calls_.init, "hwloc_topology_init");
    library_.need(calls_.destroy, "hwloc_topology_destroy");
    library_.need(calls_.set_flags, "hwloc_topology_set_flags");
    library_.need(calls_.set_io_filter, "hwloc_topology_set_io_types_filter");
    library_.need(calls_.set_components, "hwloc_topology_set_components");
    library_.need(calls_.load, "hwloc_topology_load");
    library_.need(calls_.is_this_system, "hwloc_topology_is_thissystem");
    library_.need(calls_.object, "hwloc_get_obj_by_depth");
    library_.need(calls_.print_list, "hwloc_bitmap_list_snprintf");
    library_.need(calls_.first, "hwloc_bitmap_first");
    library_.need(calls_.weight, "hwloc_bitmap_weight");
  }

  bool load() {
    hwloc_abi::Topology topology = nullptr;
    errno = 0;
    if (calls_.init(&topology) != 0) return fail("does not start");
    topology_ = {topology, {calls_.destroy}};
    // These components would start the GPUs' drivers in this process, for information that NVML gives anyway.
    for (const char* component : {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"})
      calls_.set_components(topology, hwloc_abi::leave_out_component, component);
    if (calls_.set_flags(topology, hwloc_abi::include_disallowed) != 0 ||
        calls_.set_io_filter(topology, hwloc_abi::keep_important) != 0)
      return fail("does not take its settings");
    if (calls_.load(topology) != 0) return fail("does not describe this machine");
    if (calls_.is_this_system(topology) != 0) return true;
    note("hwloc describes another machine (HWLOC_XMLFILE, HWLOC_SYNTHETIC or HWLOC_FSROOT is set): it is not used; " +
         std::string("to show that one: strait topo --from FILE"));
    return false;
  }

  bool fail(const std::string& what) {
    note("hwloc " + what + ": " + reason() + ". Where devices are plugged in is only what /sys says");
    return false;
  }

  template <class Visit>
  void each(int depth, const Visit& visit) {
    for (unsigned i = 0; const Object* object = calls_.object(topology_.get(), depth, i); ++i) visit(*object);
  }

  void describe() {
    each(hwloc_abi::depth_numa, [&](const Object& numa) {
      if (std::string cpus = list(numa.cpus); !cpus.empty())
        survey_.numas.push_back({static_cast<std::int32_t>(numa.number), std::move(cpus), 0});
    });
    if (survey_.numas.empty()) {
      note("hwloc knows no NUMA node with CPUs: it is not used");
      return;
    }
    for (const int depth : {hwloc_abi::depth_bridge, hwloc_abi::depth_pci})
      each(depth, [&](const Object& object) { add_function(object); });
    each(hwloc_abi::depth_os_device, [&](const Object& object) { add_nic(object); });
    survey_.answered = true;
  }

  void add_function(const Object& object) {
    const hwloc_abi::PciAttributes* pci = address_of(object);
    if (pci == nullptr) return;
    PciFunction function{.bus_id = bus_id_of(*pci), .class_code = pci->class_code, .vendor = pci->vendor};
    if (!function.is_bridge() && !function.is_gpu() && !function.is_nic()) return;
    function.parent_bus_id = bus_id_at(object.parent);
    function.numa = numa_of(object);
    function.width = pcie_width_of(pci->link_gbps);
    survey_.pci.emplace(function.bus_id, std::move(function));
  }

  void add_nic(const Object& object) {
    if (object.name == nullptr || object.attributes == nullptr) return;
    const std::int32_t type = object.attributes->os_device;
    if (type != hwloc_abi::os_network && type != hwloc_abi::os_verbs) return;
    survey_.nics.push_back({.name = object.name, .bus_id = bus_id_at(object.parent), .numa = numa_of(object)});
  }

  /// Returns the NUMA node of the CPUs to which a device is attached; -1 if they belong to several nodes, which tells
  /// nothing.
  std::int32_t numa_of(const Object& device) const {
    const Object* object = &device;
    while (object != nullptr && object->numas == nullptr) object = object->parent;
    return object != nullptr && calls_.weight(object->numas) == 1 ? calls_.first(object->numas) : -1;
  }

  std::string list(Bitmap bitmap) const {
    if (bitmap == nullptr) return "";
    const int size = calls_.print_list(nullptr, 0, bitmap);
    if (size <= 0) return "";
    std::string text(static_cast<std::size_t>(size) + 1, '\0');
    calls_.print_list(text.data(), text.size(), bitmap);
    text.resize(static_cast<std::size_t>(size));
    return text;
  }

  SharedLibrary library_;
  Symbols calls_;
  std::unique_ptr<hwloc_abi::HwlocTopology, Destroy> topology_;
  HwlocSurvey survey_;
};

}  // namespace

HwlocSurvey survey_hwloc(const std::string& library) { return Hwloc(library).take(); }

}  // namespace strait
