#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/doorman.hpp"
#include "bootstrap/hand_out.hpp"
#include "bootstrap/unique_id.hpp"

namespace strait {

struct RootOptions {
  /// Until when ranks may join. In addition, each rank's own deadline applies once it has joined.
  Deadline deadline = Deadline::never();
  Doorman::Limits limits;
  int ranks = 1;  ///< how many ranks will come, as far as known: after a failure the root waits to tell that many
  /// A setting that all ranks must give with this value; a different value means another set of ranks. Of several sets
  /// that join one after another, the one with fewer ranks is the later: a rank of an earlier set is refused on its
  /// own, and a rank of a later set ends this root.
  std::optional<Setting> rank_set;
  /// A socket from reserve_at(), at whose address the root listens instead of the unique id's. A root of this process
  /// that still listens there is ended first.
  const Socket* reserved = nullptr;
  HandOut hand_out;
  /// Texts that name the ranks, by rank, if they were known before (rejoin()); otherwise empty.
  std::vector<std::string> names;
  std::vector<int> known_as;  ///< as JoinOptions::known_as
  std::string job;            ///< the job that the ranks belong to
  /// How long after the first rank has joined the log first says which ranks are missing (WaitReminder).
  std::int64_t remind_after_ms = WaitReminder::default_first_ms;
};

/// State of a root.
struct RootReport {
  bool finished = false;
  int joined = 0;  ///< number of ranks that have joined
  std::int64_t strangers_dropped = 0;
  /// Ranks that have not joined, by the numbers that the user knows; empty also as long as none has.
  std::vector<int> missing{};
};

/// Starts a root: a thread of this process that introduces the ranks of one unique id to one another. It ends when all
/// ranks have connected to their neighbours, when they have been told that they cannot, at the deadline, or when the
/// process ends. It receives one frame from each rank and answers with one that contains the address of the rank's
/// parent; everything else travels along the tree. `id.root` is where to listen (port 0: any port); the returned id has
/// the real port. A root of this process at that address that has failed, and would only tell late ranks so, is ended
/// first.
Result<UniqueId> start_root(UniqueId id, RootOptions options);

/// Ends a failed root of this process that still gives the unique id to ranks of this job (RootOptions::hand_out).
void end_failed_root(const std::string& job);

/// Returns the state of the root of this process that listens at the address; nothing if there is none.
std::optional<RootReport> report_of_root(const SocketAddress& address);

}  // namespace strait
