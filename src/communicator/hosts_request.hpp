#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "communicator/comm.hpp"
#include "device/device_rank.hpp"

namespace strait {

/// What makes a GPU rank among those of several hosts (HostsRank).
struct HostsRequest {
  int device = 0;
  std::uint32_t rank = 0;
  std::uint32_t max_sms = 0;   ///< DeviceOptions
  std::vector<Island> hosts;   ///< which ranks are of one
  bool joins_graphs = true;    ///< CallOrder::Setup
  Watch* watch = nullptr;      ///< outlives the rank
  std::unique_ptr<Comm> host;  ///< the GPU ranks of this host
  /// Host ranks, by lane of the proxy: one of each host, as DeviceIslands has them meet; none: not this one.
  std::vector<std::unique_ptr<Comm>> across;
  std::vector<std::unique_ptr<Comm>> all;  ///< likewise, everybody
  std::uint32_t exact_lanes = 1;           ///< NetworkLanes
  /// As in DeviceRank::Request.
  std::function<Status(const Status& own, const std::string& what)> agree;
};
/// Of a proxy.
struct NetworkLanes {
  std::uint32_t all = 1;
  /// Of them, what travels as it is: as many as fill a rank's share of the network, if that is known, for more
  /// connections than that hold one another up. What is encoded, and takes a core longer than the network, goes by all.
  std::uint32_t exact = 1;
};
/// Where nobody says how many. Each has a socket for each rank and each host. `gbps`: GB/s each way; 0: unknown.
NetworkLanes network_lanes(std::uint32_t cores, double gbps, std::size_t ranks_and_hosts);
/// More of them would need more room in the arguments of kernels.
inline constexpr std::size_t most_hosts = 64;
Result<std::unique_ptr<DeviceRank>> open_hosts_rank(HostsRequest request);

}  // namespace strait
