#pragma once

#include <memory>
#include <optional>

#include "bootstrap/doorman.hpp"
#include "bootstrap/unique_id.hpp"

namespace strait {

struct RootOptions {
  /// Until when ranks may join. Each rank's own deadline counts besides, from its joining on.
  Deadline deadline = Deadline::never();
  Doorman::Limits limits;
  /// A listening unix socket: processes of the same user that connect to it are handed the unique id.
  Socket hand_out;
};

/// What a root has seen so far.
struct RootReport {
  bool finished = false;
  std::int64_t strangers_dropped = 0;
};

/// Introduces the ranks of one unique id to one another, on a thread of this process that ends when all have found each
/// other, when they have been told that they cannot, by the deadline, or at the end of the process. Of a rank it takes
/// one frame and gives it one with its parent's address: everything else goes along the tree.
/// `id.root` is where to listen (port 0: any); the returned id has the real port.
Result<UniqueId> start_root(UniqueId id, RootOptions options);

/// How the root that listens at this address is doing; nothing for an address of another process.
std::optional<RootReport> report_of_root(const SocketAddress& address);

}  // namespace strait
