#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

struct RendezvousRequest {
  std::uint32_t rank = 0;
  std::vector<LocalRank> ranks;  ///< all ranks of the communicator, by rank; the leader is the first
  Secret secret;
  std::size_t segment_bytes = 0;
  int heap_fd = -1;  ///< this process's shared heap, or -1
  Deadline deadline = Deadline::never();
  std::function<Status()> check;  ///< asked while waiting; its error (another rank has failed) ends the wait
};

/// What a rank holds afterwards. `pidfds` and `heaps` are by rank and empty for ranks of this very process, and where
/// the peer's system gave none.
struct RendezvousResult {
  UniqueFd segment;
  std::vector<UniqueFd> pidfds;
  std::vector<UniqueFd> heaps;
};

Result<RendezvousResult> meet(const RendezvousRequest& request);

}  // namespace strait::shm
