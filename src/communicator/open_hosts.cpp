// What GPU ranks of several hosts add to the set-up of a communicator: communicators among parts of its ranks.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "communicator/agree.hpp"
#include "communicator/comm.hpp"
#include "communicator/hosts_request.hpp"
#include "communicator/opening.hpp"

namespace strait {
namespace {

/// Returns the ranks of each host, with hosts in the order of their first ranks.
std::vector<Island> hosts_of(const std::vector<PeerInfo>& peers) {
  std::vector<Island> hosts;
  for (std::uint32_t rank = 0; rank < peers.size(); ++rank) {
    const auto known = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const Island& host) { return peers[host.front()].same_host(peers[rank]); });
    if (known == hosts.end())
      hosts.push_back({rank});
    else
      known->push_back(rank);
  }
  return hosts;
}

/// Returns the ranks with which a rank of that place meets across hosts (DeviceIslands); empty if there are none.
Island across(const std::vector<Island>& hosts, std::uint32_t place) {
  Island ranks;
  const bool alike = are_alike(hosts);
  if (!alike && place != 0) return ranks;
  for (const Island& host : hosts) ranks.push_back(host[alike ? place : 0]);
  return ranks;
}

}  // namespace

NetworkLanes network_lanes(std::uint32_t cores, double gbps, std::size_t ranks_and_hosts) {
  constexpr std::uint32_t most = 8;
  constexpr std::size_t most_sockets = 256;
  constexpr double gbps_of_lane = 1.25;  // what a lane carries; on loopback up to 1.5
  const auto by_sockets = static_cast<std::uint32_t>(most_sockets / ranks_and_hosts);
  NetworkLanes lanes;
  lanes.all = lanes.exact = std::clamp(std::min(cores / 2, by_sockets), 1u, most);
  if (gbps > 0) lanes.exact = static_cast<std::uint32_t>(std::min<double>(std::ceil(gbps / gbps_of_lane), lanes.all));
  return lanes;
}

Status Comm::open_hosts(const Opening& opening) {
  HostsRequest request;
  request.device = options_.device;
  request.rank = rank_;
  request.max_sms = options_.gpu.max_sms;
  request.hosts = hosts_of(channel_->peers());
  request.joins_graphs = options_.gpu.joins_graphs;
  request.watch = watch_.get();
  if (request.hosts.size() > most_hosts)
    return fail(Code::unsupported, "GPU ranks of " + std::to_string(request.hosts.size()) +
                                       " hosts; this version joins at most " + std::to_string(most_hosts));
  device_deadline_ = opening.deadline;
  request.agree = [this](const Status& status, const std::string& what) {
    return agree(*channel_, status, what, device_deadline_);
  };
  const auto [host, place] = place_of(request.hosts, rank_);
  Island everyone(ranks_);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) everyone[rank] = rank;
  // Ranks of a part have its color, and keys in the order of its members; ranks without a part have a negative color.
  const auto join_part = [&](const Island& members, std::uint32_t color, int device) {
    CommOptions part = options_;
    part.device = device;
    part.init_timeout_ms = std::max<std::int64_t>(opening.deadline.remaining_ms(), 1);
    part.wire = WireFormat::off;  // each call has its own
    part.averaged = device < 0 ? ranks_ : 0;
    for (const std::uint32_t member : members) part.names.push_back(watch_->name_of(member));
    const auto key = std::find(members.begin(), members.end(), rank_) - members.begin();
    auto made =
        make_part(members.empty() ? -1 : static_cast<int>(color), static_cast<int>(key), part, opening.is_cancelled);
    if (made && *made) (*made)->options_.init_timeout_ms = options_.init_timeout_ms;  // for later set-up calls
    return made;
  };
  STRAIT_ASSIGN(request.host, join_part(request.hosts[host], host, options_.device));
  const NetworkLanes lanes = opening.network_lanes != 0
                                 ? NetworkLanes{opening.network_lanes, opening.network_lanes}
                                 : network_lanes(opening.resources.least_cores, opening.resources.least_network_gbps,
                                                 ranks_ + request.hosts.size());
  request.exact_lanes = lanes.exact;
  for (std::uint32_t lane = 0; lane < lanes.all; ++lane) {
    STRAIT_ASSIGN(auto across_lane, join_part(across(request.hosts, place), place, -1));
    if (across_lane) request.across.push_back(std::move(across_lane));
    STRAIT_ASSIGN(auto lane_of_all, join_part(everyone, 0, -1));
    request.all.push_back(std::move(lane_of_all));
  }
  STRAIT_ASSIGN(auto device, open_hosts_rank(std::move(request)));
  use_device(std::move(device));
  if (rank_ == 0) log_info(0, "the GPUs of several hosts trade through " + transport_name_);
  return {};
}

}  // namespace strait
