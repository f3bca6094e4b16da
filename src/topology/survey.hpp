#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "topology/topology.hpp"

/// What sysfs, hwloc, NVML, verbs or another program's file says of a host, before it is made a topology. The sources
/// differ in what they know; what they all leave out (rates, mostly) is assumed in one place, assemble.cpp.
namespace strait {

struct PciFunction {
  std::string bus_id{};          ///< "0000:1b:00.0", lower case
  std::string parent_bus_id{};   ///< the bridge it is behind; "": at the root complex
  std::uint32_t class_code = 0;  ///< the upper two bytes: 0x0302
  std::uint32_t vendor = 0;
  std::int32_t numa = -1;  ///< -1: unknown
  PcieWidth width{};
  bool acs = false;         ///< redirects peer traffic upwards
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
  std::uint32_t capability = 0;  ///< 86 for 8.6; 0: unknown
  std::vector<NvlinkEnd> nvlinks{};
};

struct SurveyedNic {
  std::string name{};
  std::string model{};
  std::string bus_id{};  ///< "": none known
  std::int32_t numa = -1;
  double gbps = 0;          ///< 0: it is down
  std::uint32_t ports = 1;  ///< bonded ones
  bool rdma = false;        ///< the kernel has a verbs device for it
};

struct SurveyedNuma {
  std::int32_t number = 0;
  std::string cpus{};
  std::uint64_t cache_bytes = 0;
};

struct HostSurvey {
  std::string name{};
  bool lists_switch_ports = true;  ///< root ports, upstream and downstream ports are separate bridges
  bool gpudirect = false;
  std::vector<SurveyedNuma> numas{};
  std::map<std::string, PciFunction> pci{};  ///< by bus id
  std::vector<SurveyedGpu> gpus{};           ///< in the order in which they are to be numbered
  std::vector<SurveyedNic> nics{};
  std::map<std::pair<std::size_t, std::size_t>, P2pStatus> p2p{};  ///< of indices into gpus; unknown where absent
  std::vector<std::string> notes{};
};

/// Several hosts are joined by one network.
Result<Topology> assemble(std::string name, std::vector<HostSurvey> hosts);

/// "0000:1B:00.0", "00000000:1b:00.0" and "1b:00.0" are one; "" if it is no PCI address.
std::string normal_bus_id(std::string_view text);

/// What a PCIe link carries of its raw rate, each way; 0 where speed or width is unknown.
double pcie_gbps(const PcieWidth& width);
/// The narrowest common link that gives as much; `raw_gbps` is that of all lanes, one way. Unknown where none does.
PcieWidth pcie_width_of(double raw_gbps);
/// Of one NVLink, one way, by compute capability (86 for 8.6).
double nvlink_gbps(std::uint32_t capability);

}  // namespace strait
