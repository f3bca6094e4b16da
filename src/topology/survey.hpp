#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "topology/topology.hpp"

/// What sysfs, hwloc, NVML, libibverbs or another program's file tells about a host, before assemble() makes a topology
/// of it. The sources know different things. What none of them tells (mostly rates) is assumed in assemble.cpp only.
namespace strait {

struct PciFunction {
  std::string bus_id{};          ///< "0000:1b:00.0", lower case
  std::string parent_bus_id{};   ///< the bridge above it; "": it is at the root complex
  std::uint32_t class_code = 0;  ///< the upper two bytes, such as 0x0302
  std::uint32_t vendor = 0;
  std::int32_t numa = -1;  ///< -1: unknown
  PcieWidth width{};
  bool acs = false;         ///< Access Control Services redirect peer traffic upwards
  bool translated = false;  ///< the IOMMU translates its addresses

  bool is_bridge() const { return class_code == 0x0604; }
  bool is_gpu() const { return vendor == 0x10de && (class_code == 0x0300 || class_code == 0x0302); }
  bool is_nic() const { return class_code >> 8 == 0x02; }
};

struct NvlinkEnd {
  std::string remote_bus_id{};
  double gbps = 0;  ///< of one link, one way; 0: unknown
};

struct SurveyedGpu {
  std::string bus_id{};
  std::string model{};
  std::uint32_t capability = 0;  ///< compute capability: 86 for 8.6; 0: unknown
  std::vector<NvlinkEnd> nvlinks{};
};

struct SurveyedNic {
  std::string name{};
  std::string model{};
  std::string bus_id{};  ///< "": unknown
  std::int32_t numa = -1;
  double gbps = 0;          ///< 0: the link is down
  std::uint32_t ports = 1;  ///< number of bonded ports
  bool rdma = false;        ///< the kernel has a verbs device for it
};

struct SurveyedNuma {
  std::int32_t number = 0;
  std::string cpus{};
  std::uint64_t cache_bytes = 0;
};

struct HostSurvey {
  std::string name{};
  /// Whether `pci` lists root ports, and the upstream and downstream ports of switches, as separate bridges.
  bool lists_switch_ports = true;
  bool gpudirect = false;
  std::vector<SurveyedNuma> numas{};
  std::map<std::string, PciFunction> pci{};  ///< by bus id
  std::vector<SurveyedGpu> gpus{};           ///< in the order of their future numbers
  std::vector<SurveyedNic> nics{};
  std::map<std::pair<std::size_t, std::size_t>, P2pStatus> p2p{};  ///< by indices into gpus; unknown where absent
  std::vector<std::string> notes{};
};

/// Makes a topology of one or several hosts. Several hosts are joined by one network.
Result<Topology> assemble(std::string name, std::vector<HostSurvey> hosts);

/// Returns a PCI address in its canonical form: "0000:1B:00.0", "00000000:1b:00.0" and "1b:00.0" are the same. "" if it
/// is no PCI address.
std::string normal_bus_id(std::string_view text);

/// Returns the rate each way that a PCIe link carries, which is less than its raw rate; 0 if speed or width is unknown.
double pcie_gbps(const PcieWidth& width);
/// Returns the speed and width of a PCIe link by its raw rate: `raw_gbps` is that of all lanes, one way. Unknown (0) if
/// no common link has that rate.
PcieWidth pcie_width_of(double raw_gbps);
/// Returns the rate of one NVLink, one way, by compute capability (86 for 8.6).
double nvlink_gbps(std::uint32_t capability);

}  // namespace strait
