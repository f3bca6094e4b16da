#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

/// The hardware of one or several machines: devices, the links between them, and the resources that traffic shares.
///
/// All rates are in GB/s (10^9 bytes per second), one way, and are what a link really carries rather than its nominal
/// rate. Nothing here measures: rates come from files, from detection, or from the calibration records held here.
namespace strait {

enum class DeviceKind : std::uint8_t {
  host,
  numa,         ///< a NUMA node: CPUs and their memory; the place of host ranks
  root_port,    ///< where a PCIe tree leaves the socket
  pcie_switch,  ///< a switch including its upstream and downstream ports; also any other bridge
  gpu,
  nic,
  nvswitch,        ///< all NVLink switches of an NVLink domain
  network_switch,  ///< a leaf, a spine, or the whole network
};
inline constexpr int device_kind_count = 8;

enum class LinkKind : std::uint8_t { pcie, nvlink, socket, network };
inline constexpr int link_kind_count = 4;

/// Why one GPU cannot access another's memory; `ok` if it can.
enum class P2pStatus : std::uint8_t {
  ok,
  chipset_not_supported,   ///< CNS
  topology_not_supported,  ///< TNS: the PCIe root complexes do not forward to one another
  gpu_not_supported,       ///< GNS
  disabled,                ///< switched off in the driver's configuration
  not_supported,           ///< NS: not supported, without a reason
  acs,                     ///< a PCIe bridge redirects peer traffic (Access Control Services)
  iommu,                   ///< the IOMMU translates, so a peer's bus addresses do not refer to its memory
  unknown,                 ///< no source tells
};
inline constexpr int p2p_status_count = 9;

std::string_view name(DeviceKind kind);      ///< "pcie_switch"
std::string_view name(LinkKind kind);        ///< "nvlink"
std::string_view name(P2pStatus status);     ///< "CNS"
std::string_view explain(P2pStatus status);  ///< what the status means, and the remedy
std::optional<DeviceKind> device_kind_of(std::string_view text);
std::optional<LinkKind> link_kind_of(std::string_view text);
std::optional<P2pStatus> p2p_status_of(std::string_view text);

using DeviceId = std::uint32_t;
inline constexpr DeviceId no_device = UINT32_MAX;

struct Device {
  DeviceKind kind = DeviceKind::host;
  std::string name{};             ///< unique: "host0/gpu3"; names of devices outside of hosts have no slash
  DeviceId parent = no_device;    ///< the device it is plugged into; a host's devices form a tree
  std::string model{};            ///< "NVIDIA GeForce RTX 3090", "mlx5_0"
  std::string bus_id{};           ///< PCI address, "0000:1b:00.0"
  std::string cpus{};             ///< of a NUMA node: "0-15,32-47"
  double memory_gbps = 0;         ///< of a NUMA node: shared by all reads and writes of its DRAM; 0: unknown, no limit
  std::uint64_t cache_bytes = 0;  ///< of a NUMA node: its last-level caches together
  bool acs = false;               ///< of a bridge: it redirects peer traffic upwards
  bool gpudirect = false;         ///< of a host: NICs access GPU memory directly, not through host memory
  P2pStatus p2p = P2pStatus::unknown;  ///< of a host: between its GPUs that no NVLink joins

  friend bool operator==(const Device&, const Device&) = default;
};

/// The current and the best speed and width of a PCIe link. 0: unknown.
struct PcieWidth {
  double gigatransfers = 0;
  std::uint32_t lanes = 0;
  double most_gigatransfers = 0;
  std::uint32_t most_lanes = 0;

  friend bool operator==(const PcieWidth&, const PcieWidth&) = default;
};

/// A link, which works both ways at once. `upper` of a PCIe link is nearer to the CPU; of other links, `lower` is the
/// device from which the link is listed.
struct Link {
  LinkKind kind = LinkKind::pcie;
  DeviceId upper = 0;
  DeviceId lower = 0;
  double up_gbps = 0;    ///< from lower to upper
  double down_gbps = 0;  ///< from upper to lower
  double latency_us = 0;
  std::uint32_t count = 1;  ///< number of NVLinks or bonded ports; the rates are those of all together
  PcieWidth pcie{};

  friend bool operator==(const Link&, const Link&) = default;
};

/// A measured rate of one direction of a link, or of a NUMA node's memory (`from` == `to`). It replaces the rate of the
/// link or memory.
struct MeasuredRate {
  DeviceId from = 0;
  DeviceId to = 0;
  double bandwidth_gbps = 0;
  double latency_us = 0;  ///< 0: not measured
  std::string origin{};   ///< how and when it was measured: "copy engine, one pair at a time, 2026-11-20"

  friend bool operator==(const MeasuredRate&, const MeasuredRate&) = default;
};

/// The whole contents of a topology file.
struct TopologyData {
  std::string name{};
  std::vector<std::string> notes{};  ///< assumptions, and what detection could not see
  std::vector<Device> devices{};     ///< parents come before their children
  std::vector<Link> links{};
  /// By (writer, owner), for pairs whose status differs from the host's.
  std::map<std::pair<DeviceId, DeviceId>, P2pStatus> p2p{};
  std::vector<MeasuredRate> calibrations{};

  friend bool operator==(const TopologyData&, const TopologyData&) = default;
};

/// Something that traffic shares: one direction of a link, or the memory of a NUMA node (reads and writes together).
struct Resource {
  std::string name{};
  double bandwidth_gbps = 0;  ///< 0: no limit is known
  double latency_us = 0;
};
using ResourceId = std::uint32_t;

enum class PathKind : std::uint8_t {
  self,
  nvlink,
  pcie,    ///< peer to peer over PCIe, or between a GPU and host memory
  host,    ///< between GPUs through host memory, for the reason given by Path::reason
  socket,  ///< between the memories of two NUMA nodes
  net,
  none,  ///< there is no path
};
std::string_view name(PathKind kind);  ///< "HOST"

struct Path {
  PathKind kind = PathKind::none;
  P2pStatus reason = P2pStatus::ok;   ///< why a path of kind `host` is not peer to peer
  std::vector<ResourceId> crosses{};  ///< in order; host memory that is written and then read appears twice
  double bandwidth_gbps = 0;  ///< of the narrowest resource, if nothing else uses the path; 0: no limit is known
  ResourceId bottleneck = 0;  ///< the narrowest resource
  double latency_us = 0;
  DeviceId from_nic = no_device;  ///< of a path of kind `net`
  DeviceId to_nic = no_device;
};

/// A topology that has been checked, and answers questions. Immutable. Nothing is stored for pairs of GPUs: paths are
/// computed when asked for.
class Topology {
 public:
  /// Checks the data. An error names the device or link that is inconsistent.
  static Result<Topology> make(TopologyData data);

  const TopologyData& data() const { return data_; }
  const std::string& name() const { return data_.name; }
  const Device& device(DeviceId id) const { return data_.devices[id]; }
  std::vector<DeviceId> all(DeviceKind kind) const;
  std::optional<DeviceId> find(std::string_view device_name) const;
  /// Returns the devices on which ranks are placed: the GPUs in order or, if there are none, the NUMA nodes.
  std::vector<DeviceId> ranks() const;

  DeviceId host_of(DeviceId id) const { return host_[id]; }  ///< no_device outside of hosts
  DeviceId numa_of(DeviceId id) const { return numa_[id]; }
  /// Returns the NIC for traffic between this GPU or NUMA node and other hosts: the nearest connected one in the tree.
  /// Several GPUs that are equally near to several NICs are assigned to them in turn. no_device if there is none.
  DeviceId nic_of(DeviceId id) const;

  /// Returns the path between two GPUs or NUMA nodes (their memory), in any combination.
  Path path(DeviceId from, DeviceId to) const;
  /// Whether an NVLink or an NVLink switch joins two GPUs, and no P2P status forbids its use.
  bool joined_by_nvlink(DeviceId from, DeviceId to) const;
  /// Returns what the driver, the machine or a probe says about P2P between two GPUs of a host.
  P2pStatus p2p(DeviceId from, DeviceId to) const;

  std::uint32_t resource_count() const { return static_cast<std::uint32_t>(resources_.size()); }
  const Resource& resource(ResourceId id) const { return resources_[id]; }
  ResourceId toward_lower(std::uint32_t link) const { return 2 * link; }
  ResourceId toward_upper(std::uint32_t link) const { return 2 * link + 1; }
  std::optional<ResourceId> memory_of(DeviceId numa) const;

 private:
  struct Hop {
    DeviceId to;
    ResourceId resource;
  };

  explicit Topology(TopologyData data) : data_(std::move(data)) {}
  Status check_devices();
  Status check_parent(DeviceId id) const;
  Status check_link(const Link& link) const;
  Status check_reachable() const;
  Status index_links();
  Status apply_calibrations();
  const Hop* hop(DeviceId from, DeviceId to) const;
  std::vector<DeviceId> ancestors(DeviceId id) const;
  bool append(std::vector<ResourceId>& crosses, DeviceId from, DeviceId to) const;
  bool route(DeviceId from, DeviceId to, LinkKind kind, std::vector<ResourceId>& crosses) const;
  bool climb(DeviceId from, DeviceId to, std::vector<ResourceId>& crosses) const;
  bool through_nvlink(DeviceId from, DeviceId to, std::vector<ResourceId>& crosses) const;
  bool through_memory(DeviceId from, DeviceId to, std::vector<ResourceId>& crosses) const;
  Path inside_host(DeviceId from, DeviceId to) const;
  Path between_hosts(DeviceId from, DeviceId to) const;
  void finish(Path& path) const;

  TopologyData data_;
  std::vector<std::vector<Hop>> hops_{};                 ///< by device
  std::vector<DeviceId> host_, numa_;                    ///< by device
  std::map<DeviceId, std::vector<DeviceId>> members_{};  ///< by host
  std::vector<Resource> resources_{};                    ///< two for each link, then one for each NUMA node
  std::map<DeviceId, ResourceId> memory_{};              ///< by NUMA node
  std::map<std::string, DeviceId, std::less<>> by_name_{};
};

}  // namespace strait
