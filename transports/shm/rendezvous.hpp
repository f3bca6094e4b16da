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

/// How the ranks of one host exchange what only a unix socket can carry: descriptors of the segment, of their processes
/// (pidfd) and of their shared heaps. One rank, the leader, listens, collects the descriptors and passes them to all
/// ranks.
namespace strait::shm {

/// Random values drawn by the leader and known only to the communicator's ranks, which receive them over the
/// authenticated bootstrap channel.
struct Secret {
  std::array<std::byte, 16> name;      ///< part of the socket's name; anyone on the host can list it
  std::array<std::byte, 32> password;  ///< sent by both sides as a proof
};

struct LocalRank {
  std::uint32_t rank = 0;
  std::string process;              ///< token that is equal for ranks of one process
  std::uint64_t net_namespace = 0;  ///< inode; abstract unix sockets do not reach other network namespaces
};

/// Collective. Returns success if every rank's `own` status is success; otherwise the error of one failing rank, the
/// same on all ranks. From the first failure on it returns that error again without asking the others.
using Agree = std::function<Status(const Status& own)>;

struct RendezvousRequest {
  std::uint32_t rank = 0;
  std::vector<LocalRank> ranks;  ///< all ranks of the communicator, by rank; the first is the leader
  Secret secret;
  std::size_t segment_bytes = 0;
  int heap_fd = -1;  ///< this process's shared heap, or -1
  Deadline deadline = Deadline::never();
  std::function<Status()> check;  ///< called while waiting; its error (another rank has failed) ends the wait
  Agree agree;
};

/// What a rank has afterwards. `pidfds` and `heaps` are by rank. They are empty for ranks of the same process, and if
/// the peer's system provides none.
struct RendezvousResult {
  UniqueFd segment;
  std::vector<UniqueFd> pidfds;
  std::vector<UniqueFd> heaps;
  std::int64_t strangers_dropped = 0;  ///< counted by the leader
};

/// Exchanges the descriptors. Collective. If a rank cannot reach the leader, all ranks learn that at once.
Result<RendezvousResult> meet(const RendezvousRequest& request);

/// Returns "strait-" and the public part of the secret, as the name of objects that need one for a moment.
std::string public_name(const Secret& secret);
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace strait::shm
