#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transports/shm/lives.hpp"
#include "transports/shm/rendezvous.hpp"
#include "transports/slots/segment_transport.hpp"

/// Shared memory: ranks that are processes of one host (threads may be among them). The segment is a sealed memfd that
/// travels over a unix socket: no names, nothing left behind, no limit of /dev/shm.
namespace strait::shm {

struct Opened {
  std::unique_ptr<slots::SegmentTransport> transport;
  std::shared_ptr<const Lives> lives;
};

struct OpenRequest {
  std::uint32_t rank = 0;
  std::vector<LocalRank> ranks;  ///< by rank
  Secret secret;
  slots::Geometry geometry;
  Deadline deadline = Deadline::never();
  std::function<Status()> check;  ///< see RendezvousRequest
  Agree agree;                    ///< likewise
};

/// Collective: it succeeds on all ranks, or gives the same error on all.
Result<Opened> open(const OpenRequest& request);
/// The same without passing descriptors, for ranks that share no unix socket but /dev/shm: over a file there, which has
/// a name only until all have opened it. Peers' buffers are out of reach.
Result<Opened> open_file(const OpenRequest& request);

}  // namespace strait::shm
