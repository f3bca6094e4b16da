#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transports/shm/rendezvous.hpp"
#include "transports/slots/segment_transport.hpp"

/// Shared memory, for ranks that are processes or threads of one host. The segment is a sealed memfd passed over a unix
/// socket: it has no name, leaves nothing behind and is not limited by the size of /dev/shm.
namespace strait::shm {

struct OpenRequest {
  std::uint32_t rank = 0;
  std::vector<LocalRank> ranks;  ///< by rank
  Secret secret;
  slots::Geometry geometry;
  Deadline deadline = Deadline::never();
  std::function<Status()> check;  ///< see RendezvousRequest
  Agree agree;                    ///< see Agree
};

/// Opens the transport. Collective: it succeeds on all ranks, or returns the same error on all.
Result<std::unique_ptr<Transport>> open(const OpenRequest& request);
/// As open(), for ranks that share /dev/shm but no unix socket: the segment is a file there, which has a name only
/// until all ranks have opened it. No descriptors are passed, so peers' buffers cannot be accessed.
Result<std::unique_ptr<Transport>> open_file(const OpenRequest& request);

}  // namespace strait::shm
