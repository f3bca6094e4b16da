#include "topology/sysfs.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/environment.hpp"
#include "topology/sysfs_files.hpp"

namespace strait {
namespace {

constexpr std::size_t extended_config = 0x100;  // where PCIe's extended capabilities start; only root may read them
constexpr std::uint32_t acs_capability = 0x000d;
constexpr std::size_t acs_control = 6;
constexpr std::uint32_t acs_redirects = 0x0c;  // bits for redirecting peer requests and peer completions

std::uint32_t little_endian(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = size; i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[at + i - 1]);
  return value;
}

enum class Acs { off, redirects, hidden };

Acs read_acs(const SysDirectory& device) {
  const std::string config = device.text("config");
  if (config.size() <= extended_config) return Acs::hidden;
  std::size_t at = extended_config;
  for (int hops = 0; hops < 64 && at >= extended_config && at + 8 <= config.size(); ++hops) {
    const std::uint32_t header = little_endian(config, at, 4);
    if ((header & 0xffff) == acs_capability)
      return (little_endian(config, at + acs_control, 2) & acs_redirects) != 0 ? Acs::redirects : Acs::off;
    at = header >> 20;
  }
  return Acs::off;
}

/// Parses "16.0 GT/s PCIe"; returns 0 for "Unknown".
double transfers(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::uint32_t lanes(const SysDirectory& device, const char* file) {
  const std::int64_t value = device.number(file).value_or(0);
  return value > 0 && value <= 32 ? static_cast<std::uint32_t>(value) : 0;  // 63 and 255 mean unknown
}

class Survey {
 public:
  explicit Survey(const std::string& root) : root_(root), sys_(root + "/sys") {}

  HostSurvey run() {
    read_machine();
    read_numas();
    read_pci();
    read_nics();
    return std::move(host_);
  }

 private:
  void note(std::string text) { host_.notes.push_back(std::move(text)); }

  void read_machine() {
    const std::string cpuinfo = SysDirectory(root_ + "/proc").text("cpuinfo");
    if (cpuinfo.find(" hypervisor") != std::string::npos)
      note("this is a virtual machine: PCIe tree, speeds and NUMA nodes are what the hypervisor shows");
    host_.gpudirect = sys_.sub("module/nvidia_peermem").exists();
  }

  void read_numas() {
    const SysDirectory nodes = sys_.sub("devices/system/node");
    for (const std::string& entry : nodes.names()) {
      const auto number = numbered(entry, "node");
      const std::string cpus = nodes.sub(entry).line("cpulist");
      if (number && !cpus.empty()) host_.numas.push_back({static_cast<std::int32_t>(*number), cpus, cache_bytes(cpus)});
    }
    if (!host_.numas.empty()) return;
    const std::string cpus = sys_.sub("devices/system/cpu").line("online");
    note("/sys shows no NUMA nodes: assumed one with all CPUs");
    host_.numas.push_back({0, cpus, cache_bytes(cpus)});
  }

  /// Returns the size of the last-level caches of these CPUs, each cache counted once.
  std::uint64_t cache_bytes(const std::string& cpus) const {
    std::set<std::string> counted;
    std::uint64_t total = 0;
    for (const std::uint32_t cpu : parse_cpu_list(cpus)) {
      const SysDirectory caches = sys_.sub("devices/system/cpu/cpu" + std::to_string(cpu) + "/cache");
      SysDirectory last = caches;
      std::int64_t level = 0;
      for (const std::string& entry : caches.names()) {
        const std::int64_t own = caches.sub(entry).number("level").value_or(0);
        if (own > level) level = own, last = caches.sub(entry);
      }
      if (level > 0 && counted.insert(last.line("shared_cpu_list")).second)
        total += static_cast<std::uint64_t>(parse_bytes(last.line("size")).value_or(0));
    }
    return total;
  }

  void read_pci() {
    const SysDirectory devices = sys_.sub("bus/pci/devices");
    const std::vector<std::string> names = devices.names();
    if (names.empty()) note("/sys shows no PCI devices: a container may hide them, or the machine has none");
    bool hidden_acs = false;
    for (const std::string& entry : names) {
      const SysDirectory device = devices.sub(entry);
      PciFunction function{.bus_id = normal_bus_id(entry)};
      if (function.bus_id.empty()) continue;
      function.class_code = static_cast<std::uint32_t>(device.hex("class").value_or(0) >> 8);
      function.vendor = static_cast<std::uint32_t>(device.hex("vendor").value_or(0));
      if (!function.is_bridge() && !function.is_gpu() && !function.is_nic()) continue;
      function.parent_bus_id = normal_bus_id(parent_name(device.real_path()));
      function.numa = static_cast<std::int32_t>(device.number("numa_node").value_or(-1));
      function.width = {transfers(device.line("current_link_speed")), lanes(device, "current_link_width"),
                        transfers(device.line("max_link_speed")), lanes(device, "max_link_width")};
      function.translated = device.sub("iommu_group").line("type").starts_with("DMA");
      if (function.is_bridge()) {
        const Acs acs = read_acs(device);
        function.acs = acs == Acs::redirects;
        hidden_acs |= acs == Acs::hidden;
      }
      if (function.is_gpu()) host_.gpus.push_back({.bus_id = function.bus_id});
      host_.pci.emplace(function.bus_id, std::move(function));
    }
    limit_speeds();
    if (hidden_acs && host_.gpus.size() > 1)
      note("only root may read whether PCIe bridges redirect peer traffic (ACS): not known here");
  }

  /// Limits the best speed of each link to that of the slower of its two ends.
  void limit_speeds() {
    for (auto& [bus_id, function] : host_.pci) {
      const auto above = host_.pci.find(function.parent_bus_id);
      if (above == host_.pci.end()) continue;
      const PcieWidth& port = above->second.width;
      if (port.most_gigatransfers > 0 && function.width.most_gigatransfers > port.most_gigatransfers)
        function.width.most_gigatransfers = port.most_gigatransfers;
    }
  }

  void read_nics() {
    read_verbs();
    const SysDirectory all = sys_.sub("class/net");
    std::set<std::string> bonded;
    for (const std::string& entry : all.names())
      for (const std::string& slave : words(all.sub(entry).line("bonding/slaves"))) bonded.insert(slave);
    std::vector<std::string> virtual_names;
    for (const std::string& entry : all.names()) {
      const SysDirectory nic = all.sub(entry);
      if (entry == "lo" || !nic.exists() || bonded.contains(entry)) continue;
      if (const auto slaves = words(nic.line("bonding/slaves")); !slaves.empty())
        add_bond(all, entry, slaves);
      else if (nic.sub("device").exists())
        add_nic(nic, entry);
      else
        virtual_names.push_back(entry);
    }
    for (const std::string& entry : virtual_names) {
      if (!host_.nics.empty() || all.sub(entry).line("operstate") != "up") continue;
      add_nic(all.sub(entry), entry);
      note(entry + " is virtual: which card is behind it, and where that is plugged in, is unknown");
    }
  }

  void read_verbs() {
    const SysDirectory all = sys_.sub("class/infiniband");
    for (const std::string& entry : all.names()) {
      const SysDirectory card = all.sub(entry);
      SurveyedNic nic{.name = entry, .bus_id = bus_id_above(card.sub("device").real_path())};
      nic.ports = 0;
      nic.rdma = true;
      for (const std::string& port_name : card.sub("ports").names()) {
        const SysDirectory port = card.sub("ports").sub(port_name);
        const std::string state = port.line("state"), layer = port.line("link_layer");
        nic.model = layer.empty() ? "RDMA" : layer == "Ethernet" ? "RoCE" : layer;
        if (state.find("ACTIVE") == std::string::npos) {
          note(entry + " port " + port_name + " is " + (state.empty() ? "of unknown state" : "in state " + state) +
               ": not counted");
          continue;
        }
        double gigabits = 0;
        const std::string rate = port.line("rate");  // "400 Gb/sec (4X NDR)"
        std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
        nic.gbps += gigabits / 8;
        ++nic.ports;
        if (!has_gid(port)) note(entry + " port " + port_name + " has no GID: verbs cannot use it");
      }
      nic.ports = std::max(nic.ports, 1U);
      host_.nics.push_back(std::move(nic));
    }
  }

  static bool has_gid(const SysDirectory& port) {
    const SysDirectory gids = port.sub("gids");
    const std::vector<std::string> names = gids.names();
    return std::any_of(names.begin(), names.end(), [&](const std::string& index) {
      return gids.line(index).find_first_not_of("0:") != std::string::npos;
    });
  }

  /// Returns the rate of a network interface; 0 if it is down.
  double gbps(const SysDirectory& nic, const std::string& name) {
    if (nic.line("operstate") == "down") return 0;
    constexpr double megabits = 1.0 / 8000;
    const std::int64_t speed = nic.number("speed").value_or(-1);
    if (speed > 0) return static_cast<double>(speed) * megabits;
    constexpr double assumed_gbps = 1.25;
    note(name + " does not tell its speed: assumed 10 Gb/s");
    return assumed_gbps;
  }

  void add_nic(const SysDirectory& nic, const std::string& name) {
    const std::string bus_id = bus_id_above(nic.sub("device").real_path());
    for (SurveyedNic& known : host_.nics)
      if (!bus_id.empty() && known.bus_id == bus_id) {
        known.model += ", " + name;  // the card's verbs device is listed already
        return;
      }
    host_.nics.push_back({.name = name,
                          .model = file_name(nic.sub("device/driver").real_path()),
                          .bus_id = bus_id,
                          .numa = -1,
                          .gbps = gbps(nic, name)});
  }

  void add_bond(const SysDirectory& all, const std::string& name, const std::vector<std::string>& slaves) {
    SurveyedNic bond{.name = name, .model = "bond of", .ports = 0};
    for (const std::string& slave : slaves) {
      const SysDirectory nic = all.sub(slave);
      if (bond.bus_id.empty()) bond.bus_id = bus_id_above(nic.sub("device").real_path());
      bond.gbps += gbps(nic, slave);
      bond.model += " " + slave;
      ++bond.ports;
    }
    host_.nics.push_back(std::move(bond));
  }

  /// Returns the PCI function that a device is part of: "0000:00:03.0" for "…/0000:00:03.0/virtio2".
  static std::string bus_id_above(std::string path) {
    for (; !path.empty(); path = parent_path(path))
      if (std::string bus_id = normal_bus_id(file_name(path)); !bus_id.empty()) return bus_id;
    return "";
  }

  std::string root_;
  SysDirectory sys_;
  HostSurvey host_;
};

}  // namespace

HostSurvey survey_sysfs(const std::string& root) { return Survey(root).run(); }

}  // namespace strait
