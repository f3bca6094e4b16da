#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "communicator/comm.hpp"
#include "device/device_rank.hpp"

namespace strait {

/// What a GPU rank of several hosts (HostsRank) is made from.
struct HostsRequest {
  int device = 0;
  std::uint32_t rank = 0;
  std::uint32_t max_sms = 0;   ///< see DeviceOptions
  std::vector<Island> hosts;   ///< the ranks of each host
  bool joins_graphs = true;    ///< see CallOrder::Setup
  Watch* watch = nullptr;      ///< must outlive the rank
  std::unique_ptr<Comm> host;  ///< communicator of this host's GPU ranks
  /// Communicators of host ranks, by lane of the proxy: of one rank of each host, as DeviceIslands has them meet. Empty
  /// if this rank is not among those.
  std::vector<std::unique_ptr<Comm>> across;
  std::vector<std::unique_ptr<Comm>> all;  ///< communicators of all ranks, by lane
  std::uint32_t exact_lanes = 1;           ///< see NetworkLanes
  /// See DeviceRank::Request.
  std::function<Status(const Status& own, const std::string& what)> agree;
};
/// The lanes of a proxy.
struct NetworkLanes {
  std::uint32_t all = 1;
  /// Those for data that is not encoded: as many as fill a rank's share of the network, if that is known, because more
  /// connections hold one another up. Encoded data uses all lanes, because encoding takes a core longer than the
  /// network takes.
  std::uint32_t exact = 1;
};
/// Returns the lanes if their number is not set. Each lane has a socket for each rank and each host. `gbps`: of the
/// network, GB/s each way; 0: unknown.
NetworkLanes network_lanes(std::uint32_t cores, double gbps, std::size_t ranks_and_hosts);
/// More hosts would need more room in the arguments of kernels.
inline constexpr std::size_t most_hosts = 64;
Result<std::unique_ptr<DeviceRank>> open_hosts_rank(HostsRequest request);

}  // namespace strait
