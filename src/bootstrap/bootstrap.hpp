#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/root.hpp"
#include "bootstrap/unique_id.hpp"

/// How ranks find and trust one another. One process makes a unique id, which starts a root in it; every rank joins
/// with that id and gets its end of the out-of-band channel. Launch environments: src/bootstrap/launch.hpp.
///
/// Every connection begins with a mutual proof of the id's key; nothing that a peer sends is believed before. Of a rank
/// the root takes one frame and gives it its parent's address, so that its work is the same for every rank; identities
/// and all else travel along the tree.
namespace strait {

/// Makes a unique id with a random key and starts its root, listening on the interface that STRAIT_SOCKET_IFNAME
/// chooses.
Result<UniqueId> create_unique_id(const Environment& environment, RootOptions options = {});

/// The unique id of a root at an address agreed on beforehand. Every rank computes it; host_unique_id starts the root.
/// A host name that resolves to loopback, other than localhost, stands for this host's chosen interface: distributions
/// map a host's own name to 127.0.1.1.
Result<UniqueId> unique_id_at(const HostPort& root, const Key& key, const Environment& environment, Deadline deadline);
Result<UniqueId> host_unique_id(const UniqueId& id, RootOptions options = {});

struct JoinOptions {
  int rank = 0;
  int ranks = 1;
  /// Compared between ranks besides Strait's version and the environment variables that must be equal.
  std::vector<Setting> settings;
  Wait wait;
  Environment environment;
  /// The root that answers may be an earlier set's (RootOptions::set): this rank then waits for its own.
  bool awaits_next_root = false;
};

/// Joins and returns when all ranks have. Any failure of one rank, or a difference between ranks, is the same error on
/// all of them.
Result<std::unique_ptr<Channel>> join(const UniqueId& id, const JoinOptions& options);

/// Joins those ranks of a channel that remain, in ascending order, also when the channel has ended: the first of them
/// listens where all others of the channel know it, since they joined. Collective over these ranks alone, which give
/// the same list; `rank` and `ranks` of the options are not read. May be tried again.
Result<std::unique_ptr<Channel>> rejoin(const Channel& channel, const std::vector<int>& remaining, JoinOptions options);

}  // namespace strait
