#include <cstdio>

#include "topology/load.hpp"
#include "topology/survey.hpp"
#include "topology/xml.hpp"

namespace strait {
namespace {

std::string_view type_of(const pugi::xml_node& node) { return node.attribute("type").as_string(); }

/// Returns the first NUMA node among the objects below, without descending into I/O objects.
pugi::xml_node numa_below(const pugi::xml_node& node) {
  for (const pugi::xml_node& child : node.children("object")) {
    if (type_of(child) == "NUMANode") return child;
    if (type_of(child) == "Bridge") continue;
    if (const pugi::xml_node found = numa_below(child)) return found;
  }
  return {};
}

class HwlocReader {
 public:
  HwlocReader(std::string_view text, std::string_view where) : file_(text, where), where_(where) {}

  Result<Topology> run() {
    STRAIT_TRY(file_.parse());
    const pugi::xml_node root = file_.root();
    if (std::string_view(root.name()) != "topology")
      return file_.error(root, "hwloc's topology begins with <topology>");
    const pugi::xml_node machine = root.child("object");
    if (!machine) return file_.error(root, "there is no <object>: the file was cut short");
    if (type_of(machine) != "Machine") return file_.error(machine, "the first object must be of type Machine");
    STRAIT_TRY(walk(machine, -1, ""));
    host_.notes.push_back("from hwloc, which knows neither NVLink nor P2P: NVLink is left out, P2P unknown");
    std::vector<HostSurvey> hosts;
    hosts.push_back(std::move(host_));
    auto topology = assemble(where_, std::move(hosts));
    if (!topology) topology.error().message = where_ + ": " + topology.error().message;
    return topology;
  }

 private:
  /// Reads an object and everything below it. `numa` is the NUMA node of what is attached here, `bridge` the bridge
  /// above.
  Status walk(const pugi::xml_node& node, std::int32_t numa, const std::string& bridge) {
    const std::string_view type = type_of(node);
    if (type.empty()) return file_.error(node, "the attribute type is missing");
    if (type == "NUMANode") STRAIT_TRY(read_numa(node));
    std::string below = bridge;
    if (type == "Bridge" || type == "PCIDev") STRAIT_TRY(read_pci(node, numa, below));
    if (type == "OSDev") read_os_device(node, numa, bridge);
    // In hwloc 1, a NUMANode object contains the objects that are local to it. In hwloc 2, it is their sibling.
    const pugi::xml_node local = type == "NUMANode" ? node : numa_below(node);
    const bool is_io = type == "Bridge" || type == "PCIDev" || type == "OSDev";
    if (!is_io && local && type != "Machine") numa = local.attribute("os_index").as_int(-1);
    for (const pugi::xml_node& child : node.children("object")) STRAIT_TRY(walk(child, numa, below));
    return {};
  }

  Status read_numa(const pugi::xml_node& node) {
    if (!node.attribute("os_index")) return file_.error(node, "the attribute os_index is missing");
    const std::int32_t number = node.attribute("os_index").as_int();
    for (const SurveyedNuma& known : host_.numas)
      if (known.number == number) return file_.error(node, "there is a second NUMA node " + std::to_string(number));
    host_.numas.push_back({number, "", 0});
    return {};
  }

  /// Reads a bridge or device. Sets `bridge` to its address if it has one (a host bridge has none).
  Status read_pci(const pugi::xml_node& node, std::int32_t numa, std::string& bridge) {
    const pugi::xml_attribute address = node.attribute("pci_busid");
    if (!address) return type_of(node) == "Bridge" ? Status{} : file_.error(node, "the attribute pci_busid is missing");
    PciFunction function{.bus_id = normal_bus_id(address.as_string())};
    if (function.bus_id.empty())
      return file_.error(node, "pci_busid='" + std::string(address.as_string()) + "' is no PCI address");
    // The form is "0302 [10de:2204] [...] a1": class, vendor and device.
    if (std::sscanf(node.attribute("pci_type").as_string(), "%x [%x:", &function.class_code, &function.vendor) != 2)
      return file_.error(node, "pci_type is not of the form '0302 [10de:2204] ...'");
    function.parent_bus_id = bridge;
    function.numa = numa;
    function.width = pcie_width_of(node.attribute("pci_link_speed").as_double());
    if (function.is_gpu()) {
      host_.gpus.push_back({.bus_id = function.bus_id});
      for (const pugi::xml_node& info : node.children("info"))
        if (std::string_view(info.attribute("name").as_string()) == "PCIDevice")
          host_.gpus.back().model = info.attribute("value").as_string();
    }
    bridge = function.bus_id;
    if (!host_.pci.emplace(bridge, std::move(function)).second)
      return file_.error(node, "there is a second device at " + bridge);
    return {};
  }

  void read_os_device(const pugi::xml_node& node, std::int32_t numa, const std::string& bus_id) {
    constexpr int network = 2, verbs = 3;
    const int type = node.attribute("osdev_type").as_int(-1);
    if (type != network && type != verbs) return;
    const std::string own = node.attribute("name").as_string();
    if (own.empty()) return;
    constexpr double assumed_gbps = 1.25;
    host_.notes.push_back("hwloc does not tell the speed of " + own + ": assumed 10 Gb/s");
    host_.nics.push_back(
        {.name = own, .model = type == verbs ? "verbs" : "", .bus_id = bus_id, .numa = numa, .gbps = assumed_gbps});
  }

  XmlFile file_;
  std::string where_;
  HostSurvey host_;
};

}  // namespace

Result<Topology> parse_hwloc_xml(std::string_view text, std::string_view where) {
  return HwlocReader(text, where).run();
}

}  // namespace strait
