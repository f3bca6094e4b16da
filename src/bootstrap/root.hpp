#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/doorman.hpp"
#include "bootstrap/hand_out.hpp"
#include "bootstrap/unique_id.hpp"

namespace strait {

struct RootOptions {
  /// Until when ranks may join. Each rank's own deadline counts besides, from its joining on.
  Deadline deadline = Deadline::never();
  Doorman::Limits limits;
  int ranks = 1;  ///< how many will come, as far as is known: that many hear of a failure
  /// What all must give as it is here, else they mean another set of ranks. Of several, one after the other, that with
  /// fewer ranks is the later: who still means an earlier one is refused alone, and a later one ends this one.
  std::optional<Setting> set;
  /// An address that is reserved (reserve_at), to listen at instead of the unique id's. A root that still listens there
  /// ends first.
  const Socket* reserved = nullptr;
  HandOut hand_out;
  std::string job;  ///< whose processes these are
};

/// What a root has seen so far.
struct RootReport {
  bool finished = false;
  int joined = 0;  ///< ranks
  std::int64_t strangers_dropped = 0;
};

/// Introduces the ranks of one unique id to one another, on a thread of this process that ends when all have found each
/// other, when they have been told that they cannot, by the deadline, or at the end of the process. Of a rank it takes
/// one frame and gives it one with its parent's address: everything else goes along the tree.
/// `id.root` is where to listen (port 0: any); the returned id has the real port. A root of this process that has
/// failed there, and would go on telling late ranks so, ends first.
Result<UniqueId> start_root(UniqueId id, RootOptions options);

/// Ends a failed root of this process that still hands out the unique id to this job (RootOptions::hand_out).
void end_failed_root(const std::string& job);

/// How the root that listens at this address is doing; nothing for an address of another process.
std::optional<RootReport> report_of_root(const SocketAddress& address);

}  // namespace strait
