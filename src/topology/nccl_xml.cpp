#include <algorithm>
#include <map>

#include "topology/load.hpp"
#include "topology/survey.hpp"
#include "topology/xml.hpp"

namespace strait {
namespace {

class NcclReader {
 public:
  NcclReader(std::string_view text, std::string_view where) : file_(text, where), where_(where) {}

  Result<Topology> run() {
    STRAIT_TRY(file_.parse());
    const pugi::xml_node root = file_.root();
    if (std::string_view(root.name()) != "system") return file_.error(root, "NCCL's topology begins with <system>");
    for (const pugi::xml_node& cpu : root.children()) {
      if (cpu.type() != pugi::node_element) continue;
      if (std::string_view(cpu.name()) != "cpu")
        return file_.error(cpu, "unknown element; within <system> there is <cpu>");
      STRAIT_TRY(read_cpu(cpu));
    }
    if (hosts_.empty()) return file_.error(root, "there is no <cpu>: the file was cut short");
    std::vector<HostSurvey> hosts;
    for (auto& [hash, host] : hosts_) {
      STRAIT_TRY(settle(host));
      hosts.push_back(std::move(host.survey));
    }
    auto topology = assemble(where_, std::move(hosts));
    if (!topology) topology.error().message = where_ + ": " + topology.error().message;
    return topology;
  }

 private:
  struct Gpu {
    std::int64_t order;  ///< the attribute "rank", or "dev" if there is none
    SurveyedGpu gpu;
    pugi::xml_node node;
    std::vector<std::pair<std::string, pugi::xml_node>>
        gpu_targets;  ///< NVLinks whose class says that they end at a GPU
  };
  struct Host {
    HostSurvey survey;
    std::vector<Gpu> gpus;
  };

  Status read_cpu(const pugi::xml_node& node) {
    host_ = &hosts_[node.attribute("host_hash").as_string()];
    host_->survey.lists_switch_ports = false;
    const pugi::xml_attribute id = node.attribute("numaid");
    if (!id) return file_.error(node, "the attribute numaid is missing");
    // -1: NCCL found no NUMA node.
    numa_ = std::max(0, id.as_int(-1));
    auto& numas = host_->survey.numas;
    if (std::any_of(numas.begin(), numas.end(), [&](const SurveyedNuma& n) { return n.number == numa_; }))
      return file_.error(node, "there is a second <cpu> of numaid " + std::to_string(numa_));
    numas.push_back({numa_, "", 0});
    for (const pugi::xml_node& child : node.children()) STRAIT_TRY(read_child(child, ""));
    return {};
  }

  Status read_child(const pugi::xml_node& node, const std::string& parent) {
    const std::string_view kind = node.name();
    if (node.type() != pugi::node_element) return {};
    if (kind == "pci") return read_pci(node, parent);
    if (kind == "nic") return read_nic(node, parent);
    if (kind == "gpu") return read_gpu(node, parent);
    return file_.error(node, "unknown element; here there may be <pci>, <gpu> and <nic>");
  }

  Status read_pci(const pugi::xml_node& node, const std::string& parent) {
    PciFunction function{.bus_id = normal_bus_id(node.attribute("busid").as_string())};
    if (function.bus_id.empty())
      return file_.error(node, "busid='" + std::string(node.attribute("busid").as_string()) + "' is no PCI address");
    function.parent_bus_id = parent;
    function.class_code = node.attribute("class").as_uint() >> 8;
    function.vendor = node.attribute("vendor").as_uint();
    function.numa = numa_;
    function.width = {node.attribute("link_speed").as_double(), node.attribute("link_width").as_uint(), 0, 0};
    const std::string bus_id = function.bus_id;
    if (!host_->survey.pci.emplace(bus_id, std::move(function)).second)
      return file_.error(node, "there is a second device at busid " + bus_id);
    for (const pugi::xml_node& child : node.children()) STRAIT_TRY(read_child(child, bus_id));
    return {};
  }

  Status read_gpu(const pugi::xml_node& node, const std::string& bus_id) {
    if (bus_id.empty()) return file_.error(node, "a GPU outside of a <pci>");
    Gpu gpu{node.attribute("rank").as_llong(node.attribute("dev").as_llong()), {}, node, {}};
    if (!node.attribute("dev")) return file_.error(node, "the attribute dev is missing");
    gpu.gpu.bus_id = bus_id;
    gpu.gpu.capability = node.attribute("sm").as_uint();
    for (const pugi::xml_node& link : node.children("nvlink")) {
      const std::string target = normal_bus_id(link.attribute("target").as_string());
      const std::uint32_t count = link.attribute("count").as_uint();
      constexpr std::uint32_t most = 1024;
      if (target.empty()) return file_.error(link, "target is no PCI address");
      if (count == 0 || count > most) return file_.error(link, "count must be from 1 to " + std::to_string(most));
      gpu.gpu.nvlinks.insert(gpu.gpu.nvlinks.end(), count, NvlinkEnd{target, 0});
      constexpr std::uint32_t display = 0x03;
      if (link.attribute("tclass").as_uint() >> 16 == display) gpu.gpu_targets.emplace_back(target, link);
    }
    host_->gpus.push_back(std::move(gpu));
    return {};
  }

  Status read_nic(const pugi::xml_node& node, const std::string& bus_id) {
    for (const pugi::xml_node& net : node.children("net")) {
      SurveyedNic nic{.name = net.attribute("name").as_string(), .bus_id = bus_id, .numa = numa_};
      if (nic.name.empty()) return file_.error(net, "the attribute name is missing");
      std::replace(nic.name.begin(), nic.name.end(), '/', '-');
      constexpr double megabits = 1.0 / 8000;
      nic.gbps = net.attribute("speed").as_double() * megabits;
      if (nic.gbps < 0) return file_.error(net, "the speed is negative");
      if (net.attribute("gdr").as_int() != 0) host_->survey.gpudirect = true;
      host_->survey.nics.push_back(std::move(nic));
    }
    return {};
  }

  /// Checks and numbers the GPUs of a host, once all of them have been read.
  Status settle(Host& host) {
    std::stable_sort(host.gpus.begin(), host.gpus.end(), [](const Gpu& a, const Gpu& b) { return a.order < b.order; });
    for (Gpu& gpu : host.gpus) {
      for (const auto& entry : gpu.gpu_targets) {
        const auto is_target = [&](const Gpu& g) { return g.gpu.bus_id == entry.first; };
        if (std::none_of(host.gpus.begin(), host.gpus.end(), is_target))
          return file_.error(entry.second, "the target " + entry.first + " is no GPU of this file");
      }
      host.survey.gpus.push_back(std::move(gpu.gpu));
    }
    host.survey.notes.push_back("from NCCL, which does not write whether P2P over PCIe works: taken as unknown");
    return {};
  }

  XmlFile file_;
  std::string where_;
  std::map<std::string, Host> hosts_;  ///< by NCCL's host hash
  Host* host_ = nullptr;               ///< the host that is being read; its current NUMA node is numa_
  std::int32_t numa_ = 0;
};

}  // namespace

Result<Topology> parse_nccl_xml(std::string_view text, std::string_view where) { return NcclReader(text, where).run(); }

}  // namespace strait
