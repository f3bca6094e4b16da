#pragma once

#include <vector>

#include "base/unique_fd.hpp"
#include "bootstrap/channel.hpp"

namespace strait::tcp {

/// What connects this rank to one peer: an authenticated connection, and a pidfd if the peer's process is visible in
/// this host and PID namespace.
struct MeshPeer {
  Socket socket;
  Bytes unread;    ///< bytes that arrived with the handshake
  UniqueFd pidfd;  ///< empty for ranks of this process, of other hosts and of other PID namespaces
};

/// Connects every rank with every other. Returns the connections by rank; this rank's own entry is empty. Collective.
/// Each rank listens on the interface that the bootstrap chose, calls half of the other ranks and is called by the
/// other half, so that the work is spread evenly. It stops listening once all have connected.
Result<std::vector<MeshPeer>> open_mesh(Channel& channel, const Deadline& deadline);

}  // namespace strait::tcp
