#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transports/shm/rendezvous.hpp"
#include "transports/slots/segment_transport.hpp"

/// Shared memory: ranks that are processes of one host (threads may be among them). The segment is a sealed memfd that
/// travels over a unix socket: no names, nothing left behind, no limit of /dev/shm.
namespace strait::shm {

struct Opened {
  std::unique_ptr<slots::SegmentTransport> transport;
  std::vector<UniqueFd> pidfds;  ///< by rank: readable once that process is gone; empty for ranks of this process
};

struct OpenRequest {
  std::uint32_t rank = 0;
  std::vector<LocalRank> ranks;  ///< by rank
  Secret secret;
  slots::Geometry geometry;
  Deadline deadline = Deadline::never();
  std::function<Status()> check;  ///< see RendezvousRequest
};

Result<Opened> open(const OpenRequest& request);

}  // namespace strait::shm
