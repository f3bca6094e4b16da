// Checks of PCIe devices, network interfaces, and what the kernel has logged about them.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "doctor/checks.hpp"
#include "topology/sysfs_files.hpp"

namespace strait::doctor {
namespace {

constexpr std::uint64_t display_class = 0x03, accelerator_class = 0x12, network_class = 0x02, storage_class = 0x01;

std::string kind_of(std::uint64_t pci_class) {
  switch (pci_class >> 16) {
    case display_class:
    case accelerator_class:
      return "GPU";
    case network_class:
      return "NIC";
    case storage_class:
      return "disk";
    default:
      return "";
  }
}

double leading_number(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

Finding link_finding(const std::string& kind, const std::string& address, const SysDirectory& device) {
  const double speed = leading_number(device.line("current_link_speed"));  // "16.0 GT/s PCIe"
  const double most_speed = leading_number(device.line("max_link_speed"));
  const auto width = device.number("current_link_width").value_or(0);
  const auto most_width = device.number("max_link_width").value_or(0);
  const std::string now = fmt::format("{} {} runs at {:g} GT/s x{}", kind, address, speed, width);
  const double share = speed * static_cast<double>(width) / (most_speed * static_cast<double>(most_width));
  if (share >= 0.99) return {Severity::ok, "pcie_link", now, "", ""};
  // Idle GPUs lower the speed of their link to save power, but never its width.
  const bool may_be_idle = kind == "GPU" && width == most_width;
  return {may_be_idle || kind == "disk" ? Severity::note : Severity::warning, "pcie_link",
          now + fmt::format(", and could at {:g} GT/s x{}{}", most_speed, most_width,
                            may_be_idle ? "; perhaps because it is idle" : ""),
          fmt::format("{:.0f}% of the rate it could have", 100 * share),
          may_be_idle ? "look again under load (strait doctor --deep)"
                      : "seat it anew, use a wider slot, shorter risers, or set the slot's generation in the BIOS"};
}

/// Returns whether ACS of a bridge redirects peer-to-peer requests or completions, so that traffic between devices
/// below one switch goes up to the root complex. The only source is the ACS capability in the PCIe configuration space,
/// of which sysfs shows that part only to root.
bool redirects(const SysDirectory& device) {
  const std::string config = device.text("config");
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(config[at]); };
  const auto word = [&](std::size_t at) { return byte(at) | byte(at + 1) << 8; };
  constexpr int acs_capability = 0x000d;
  constexpr int request_redirect = 1 << 2, completion_redirect = 1 << 3;
  int steps = 0;
  for (std::size_t at = 0x100; at >= 0x100 && at + 8 <= config.size() && steps < 64; ++steps) {
    if (word(at) == acs_capability) return (word(at + 6) & (request_redirect | completion_redirect)) != 0;
    at = static_cast<std::size_t>(word(at + 2) >> 4);
  }
  return false;
}

}  // namespace

Findings check_pcie(const Machine& machine) {
  Findings found;
  const SysDirectory devices(machine.root + "/sys/bus/pci/devices");
  std::string redirecting;
  bool has_gpu = false;
  for (const std::string& address : devices.names()) {
    const SysDirectory device = devices.sub(address);
    const std::uint64_t pci_class = device.hex("class").value_or(0);
    constexpr std::uint64_t bridge_class = 0x0604;
    if (pci_class >> 8 == bridge_class && redirects(device)) redirecting += (redirecting.empty() ? "" : ", ") + address;
    const std::string kind = kind_of(pci_class);
    if (kind.empty()) continue;
    has_gpu = has_gpu || kind == "GPU";
    const bool says = leading_number(device.line("max_link_speed")) > 0 &&
                      device.number("max_link_width").value_or(0) > 0 &&
                      leading_number(device.line("current_link_speed")) > 0;
    if (says) found.push_back(link_finding(kind, address, device));
  }
  if (!redirecting.empty())
    found.push_back({has_gpu ? Severity::warning : Severity::note, "acs",
                     "ACS redirects peer traffic at " + redirecting,
                     "GPUs below one switch reach one another through the root complex, or not at all",
                     "disable ACS in the BIOS (where no virtual machine needs it)"});
  const auto groups = SysDirectory(machine.root + "/sys/kernel/iommu_groups").names();
  const std::string command_line = SysDirectory(machine.root + "/proc").line("cmdline");
  const bool passes = command_line.find("iommu=pt") != std::string::npos ||
                      command_line.find("iommu.passthrough=1") != std::string::npos;
  if (!groups.empty() && !passes && has_gpu)
    found.push_back({Severity::warning, "iommu", "the IOMMU translates every device's addresses",
                     "P2P between GPUs may fail or crawl, and NICs lose rate to translation",
                     "boot with iommu=pt, or turn the IOMMU off in the BIOS"});
  else
    found.push_back({Severity::ok, "iommu",
                     groups.empty() ? "no IOMMU in use"
                     : passes       ? "the IOMMU passes through"
                                    : "an IOMMU, and no GPU",
                     "", ""});
  return found;
}

Findings check_network(const Machine& machine) {
  Findings found;
  const SysDirectory interfaces(machine.root + "/sys/class/net");
  for (const std::string& name : interfaces.names()) {
    const SysDirectory interface = interfaces.sub(name);
    if (!interface.sub("device").exists()) continue;  // skips loopback, bridges and virtual pairs
    const std::string state = interface.line("operstate");
    const auto speed = interface.number("speed").value_or(-1);
    if (state == "down")
      found.push_back({Severity::note, "nic", name + " is down", "its rate is not used",
                       "plug in its cable, or ip link set " + name + " up, if it is meant to be used"});
    else
      found.push_back({Severity::ok, "nic",
                       speed > 0 ? fmt::format("{} is {} at {} Mb/s", name, state, speed) : name + " is " + state, "",
                       ""});
  }
  const SysDirectory adapters(machine.root + "/sys/class/infiniband");
  for (const std::string& name : adapters.names())
    for (const std::string& port : adapters.sub(name + "/ports").names()) {
      const SysDirectory files = adapters.sub(name + "/ports/" + port);
      const std::string state = files.line("state");  // "4: ACTIVE"
      const std::string text = fmt::format("{} port {} is {}, {}", name, port, state, files.line("rate"));
      if (state.starts_with("4"))
        found.push_back({Severity::ok, "hca", text, "", ""});
      else
        found.push_back({Severity::warning, "hca", text, "none of its rate is there",
                         "check the cable and the switch port; InfiniBand needs a running subnet manager"});
    }
  return found;
}

Findings check_kernel_log(const Machine& machine) {
  if (!machine.kernel_log_problem.empty())
    return {{Severity::note, "kernel_log", "the kernel log cannot be read: " + machine.kernel_log_problem,
             "GPU errors (Xid) and failing PCIe links go unseen", "run as root, or sysctl kernel.dmesg_restrict=0"}};
  Findings found;
  std::map<std::string, int> times;
  int corrected = 0;
  std::istringstream lines(machine.kernel_log);
  for (std::string line; std::getline(lines, line);) {
    if (const auto at = line.find("NVRM: Xid"); at != std::string::npos) ++times[line.substr(at, 120)];
    if (line.find("AER:") != std::string::npos && line.find("orrected") != std::string::npos) ++corrected;
  }
  for (const auto& [text, count] : times)
    found.push_back({Severity::error, "xid", fmt::format("the driver logged, {} times: {}", count, text),
                     "the GPU or its link fails, and with it every job that uses it",
                     "look the Xid up in NVIDIA's list; reset the GPU, reseat it, or have it replaced"});
  constexpr int many = 10;
  if (corrected >= many)
    found.push_back({Severity::warning, "aer", fmt::format("the kernel logged {} PCIe errors", corrected),
                     "every one of them sends data again", "reseat the device, check risers and cables"});
  if (found.empty()) found.push_back({Severity::ok, "kernel_log", "no GPU or PCIe errors in the kernel log", "", ""});
  return found;
}

}  // namespace strait::doctor
