#pragma once

#include <string>
#include <vector>

#include "bootstrap/channel.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait {

/// Returns the ranks of a communicator in the form that the rendezvous of a host takes.
inline std::vector<shm::LocalRank> local_ranks(const std::vector<PeerInfo>& peers) {
  std::vector<shm::LocalRank> ranks;
  for (const PeerInfo& peer : peers) {
    const auto* token = reinterpret_cast<const char*>(peer.process_token.data());
    ranks.push_back({static_cast<std::uint32_t>(peer.rank),
                     peer.host_id + std::string(token, peer.process_token.size()), peer.network_namespace});
  }
  return ranks;
}

}  // namespace strait
