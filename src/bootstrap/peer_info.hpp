#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/address.hpp"

namespace strait {

/// Identity and location of a rank, exchanged when ranks join. It determines what ranks can share.
struct PeerInfo {
  std::int32_t rank = 0;
  std::string host_name;                      ///< for messages only, because host names need not be unique
  std::string host_id;                        ///< the boot id of the host's kernel, or STRAIT_HOSTID
  std::int64_t pid = 0;                       ///< as the rank itself sees it, so relative to its PID namespace
  std::array<std::byte, 16> process_token{};  ///< random per process: equal only for ranks of one process
  std::uint64_t network_namespace = 0;        ///< inode of /proc/self/ns/net; 0 if unknown
  std::uint32_t uid = 0;
  SocketAddress rejoin_address;  ///< address reserved for rejoin(); unset in a channel of one rank

  bool same_host(const PeerInfo& other) const { return host_id == other.host_id; }
  bool same_process(const PeerInfo& other) const { return same_host(other) && process_token == other.process_token; }
  /// Returns a text such as "rank 3 (host node7, pid 1234)".
  std::string describe() const;
  bool operator==(const PeerInfo&) const = default;
};

/// Describes this process as `rank`.
Result<PeerInfo> local_peer_info(int rank, const Environment& environment);

}  // namespace strait
