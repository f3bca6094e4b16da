#include "communicator/tcp_model.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace strait {

void put_tcp_between(ClockModel& model, const std::vector<PeerInfo>& peers) {
  constexpr double step_us = 6, further_link_us = 3, network_gbps = 3;
  const ClockPath within{.latency_us = 4, .gbps = 8, .resources = {}};
  ClockPath between{.latency_us = 20, .gbps = network_gbps, .resources = {}};
  model.step_us += step_us;
  model.link_us += further_link_us;
  std::map<std::string_view, std::uint16_t> interfaces;  // of each host: its outgoing one; its incoming one is the next
  for (const PeerInfo& peer : peers) {
    const auto next = static_cast<std::uint16_t>(model.resources.size());
    if (!interfaces.emplace(peer.host_id, next).second) continue;
    for (const char* way : {" out", " in"})
      model.resources.push_back({"network of host " + std::to_string(interfaces.size() - 1) + way, network_gbps});
  }
  for (std::size_t path = 0; path < model.paths.size(); ++path) {
    const PeerInfo &from = peers[path / peers.size()], &to = peers[path % peers.size()];
    between.resources = {interfaces.at(from.host_id), static_cast<std::uint16_t>(interfaces.at(to.host_id) + 1)};
    model.paths[path] = from.same_host(to) ? within : between;
  }
}

}  // namespace strait
