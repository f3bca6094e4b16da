#pragma once

#include <vector>

#include "base/unique_fd.hpp"
#include "bootstrap/channel.hpp"

namespace strait::tcp {

/// The way to one peer: an authenticated connection, and its process where this host and PID namespace know it.
struct MeshPeer {
  Socket socket;
  Bytes unread;    ///< arrived with the handshake
  UniqueFd pidfd;  ///< empty for ranks of this process, of other hosts and of other PID namespaces
};

/// Connects every rank with every other, by rank; the own entry is empty. Collective. Each rank listens on the
/// interface that the bootstrap chose, calls half of the others and is called by the other half, so that no rank has
/// more to do than another, and listens no more once all have come.
Result<std::vector<MeshPeer>> open_mesh(Channel& channel, const Deadline& deadline);

}  // namespace strait::tcp
