#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

/// Messages with file descriptors over a unix SOCK_SEQPACKET socket (SCM_RIGHTS).
namespace strait::shm {

inline constexpr std::size_t max_fds_per_message = 64;  // the kernel's own limit is 253

/// Sends `body` as one message with `fds`, which remain the caller's. Fails with Code::remote_error if the peer is
/// gone. Does not wait: returns Code::in_progress if messages must be received first: by the peer if its queue is full
/// (EAGAIN); or by any receiver of this user's messages, in whatever process, if too many descriptors are in flight
/// (ETOOMANYREFS: an unprivileged user may have at most RLIMIT_NOFILE of them).
Status send_message(int socket, std::span<const std::byte> body, std::span<const int> fds);

struct Message {
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;
  bool lost_fds = false;  ///< some were dropped, because this process has no room for them or they were too many
};
/// Receives one message of at most `max_body_bytes`. An empty body means that the peer has closed. Does not wait:
/// returns Code::in_progress if there is no message.
Result<Message> receive_message(int socket, std::size_t max_body_bytes);

}  // namespace strait::shm
