#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

/// Messages with file descriptors over a unix SOCK_SEQPACKET socket (SCM_RIGHTS).
namespace strait::shm {

inline constexpr std::size_t max_fds_per_message = 64;  // the kernel's own limit is 253

/// Sends `body` as one message with `fds`, which stay the caller's. Fails with remote_error if the peer is gone. Does
/// not wait: an error of Code::in_progress where receivers must take messages first. The peer does if its queue is full
/// (EAGAIN); or else any do, in whatever process of this user: without privileges it has at most RLIMIT_NOFILE
/// descriptors on their way (ETOOMANYREFS).
Status send_message(int socket, std::span<const std::byte> body, std::span<const int> fds);

struct Message {
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;
  bool lost_fds = false;  ///< some were dropped: this process has no room for them, or they were too many
};
/// Takes one message of at most `max_body_bytes`. An empty body: the peer closed. Does not wait: EAGAIN is an error
/// of Code::in_progress.
Result<Message> receive_message(int socket, std::size_t max_body_bytes);

}  // namespace strait::shm
