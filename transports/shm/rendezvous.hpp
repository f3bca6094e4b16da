#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"

/// How the ranks of one host hand one another what only a unix socket can carry: the segment, their process
/// descriptors (pidfd) and their shared heaps. One rank, the leader, listens and gives everything to everybody.
namespace strait::shm {

/// Drawn by the leader, known to the ranks of the communicator alone (it came over the authenticated bootstrap).
struct Secret {
  std::array<std::byte, 16> name;      ///< of the socket; anyone on the host can list it
  std::array<std::byte, 32> password;  ///< which both sides show
};

struct LocalRank {
  std::uint32_t rank = 0;
  std::string process;              ///< token that threads of one process share
  std::uint64_t net_namespace = 0;  ///< inode; abstract unix sockets end there
};

/// Collective: success where every rank's status is; else one failing rank's error, the same on all ranks. From
/// the first failure on it gives that one again without asking the others.
using Agree = std::function<Status(const Status& own)>;

struct RendezvousRequest {
  std::uint32_t rank = 0;
  std::vector<LocalRank> ranks;  ///< all ranks of the communicator, by rank; the leader is the first
  Secret secret;
  std::size_t segment_bytes = 0;
  int heap_fd = -1;  ///< this process's shared heap, or -1
  Deadline deadline = Deadline::never();
  std::function<Status()> check;  ///< asked while waiting; its error (another rank has failed) ends the wait
  Agree agree;
};

/// What a rank holds afterwards. `pidfds` and `heaps` are by rank and empty for ranks of this very process, and where
/// the peer's system gave none.
struct RendezvousResult {
  UniqueFd segment;
  std::vector<UniqueFd> pidfds;
  std::vector<UniqueFd> heaps;
  std::int64_t strangers_dropped = 0;  ///< by the leader
};

/// Collective. Ranks that cannot reach the leader are known to all at once.
Result<RendezvousResult> meet(const RendezvousRequest& request);

/// "strait-" and the secret's public part, for whatever must have a name for a moment.
std::string public_name(const Secret& secret);
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace strait::shm
