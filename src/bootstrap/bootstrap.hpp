#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/init_progress.hpp"
#include "bootstrap/root.hpp"
#include "bootstrap/unique_id.hpp"

/// How ranks find and authenticate one another. One process makes a unique id, which starts a root: a thread of that
/// process that introduces the ranks to one another. Every rank joins with that id and gets its end of the out-of-band
/// channel. Ranks that a launcher started: src/bootstrap/launch.hpp.
///
/// Every connection begins with a mutual proof of the id's key; nothing that a peer sends is trusted before. The root
/// receives one frame from each rank and answers with the address of that rank's parent in the tree, so that its work
/// per rank is constant; identities and everything else travel along the tree.
namespace strait {

/// Makes a unique id with a random key and starts its root, which listens on the interface that STRAIT_SOCKET_IFNAME
/// selects.
Result<UniqueId> create_unique_id(const Environment& environment, RootOptions options = {});

/// Returns the unique id of a root at an address agreed on beforehand. Every rank computes it; one rank starts the root
/// by host_unique_id(). A host name that resolves to loopback, other than localhost, stands for this host's selected
/// interface, because distributions map a host's own name to 127.0.1.1.
Result<UniqueId> unique_id_at(const HostPort& root, const Key& key, const Environment& environment, Deadline deadline);
Result<UniqueId> host_unique_id(const UniqueId& id, RootOptions options = {});

struct JoinOptions {
  int rank = 0;
  int ranks = 1;
  /// Settings that must be equal on all ranks, in addition to Strait's version and the environment variables that must
  /// be equal.
  std::vector<Setting> settings;
  Wait wait;
  Environment environment;
  /// For rejoin(): the root that answers may still belong to an earlier set of ranks (RootOptions::rank_set); this rank
  /// then tries again until its own root listens.
  bool awaits_next_root = false;
  /// If set: the root may have ended, or may be about to, since the id was obtained. A rank that finds it so asks here
  /// for the id of the next one, until the deadline.
  std::function<Result<UniqueId>()> renew_id{};
  /// The numbers by which messages name the ranks, by rank; empty: the ranks themselves. Set by rejoin(), whose callers
  /// know the ranks by their earlier numbers.
  std::vector<int> known_as;
  /// The user's call that this is part of, for messages of the channel (Channel::set_call).
  std::string call = "initialization of the communicator";
  /// After how long a rank that waits for an answer first says so in the log (WaitReminder).
  std::int64_t remind_after_ms = WaitReminder::default_first_ms;
  InitProgress* progress = nullptr;  ///< is told how far this rank has got; may be null
  /// What is wrong with values of this rank's own settings, if anything, that only layers above know the meaning of.
  Status own_settings{};
};

/// How long a rank that cannot join, because of its own settings, tries to tell the root so.
inline constexpr std::int64_t withdrawal_ms = 1500;
/// Checks this rank's own settings, as far as they can be wrong by themselves, without waiting for anyone. The error
/// names the variable.
Status check_settings(const JoinOptions& options);

/// Joins, and returns when all ranks have joined. A failure of any rank, or a difference between ranks, is the same
/// error on all of them.
Result<std::unique_ptr<Channel>> join(const UniqueId& id, const JoinOptions& options);

/// Makes a new channel of the ranks in `remaining` (ascending), also if `channel` has failed. The first of them listens
/// at an address that all ranks have known since they joined. Collective over these ranks only, which must pass the
/// same list; `rank`, `ranks` and `known_as` of the options are ignored. Errors name the ranks by
/// their numbers in `channel`. May be called again after a failure.
Result<std::unique_ptr<Channel>> rejoin(const Channel& channel, const std::vector<int>& remaining, JoinOptions options);

}  // namespace strait
