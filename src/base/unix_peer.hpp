#pragma once

#include <sys/types.h>

#include <optional>

#include "base/unique_fd.hpp"

/// Unix sockets to which any user of this host may connect.
namespace strait {

/// Returns the user whose process is at the other end of a Unix socket; nullopt if the kernel does not tell.
std::optional<uid_t> peer_uid(int socket);

/// Shuts down and closes a socket without blocking. Messages queued in it may hold descriptors that another user has
/// sent, and closing the last copy of such a descriptor may block for as long as that user likes (a TCP connection with
/// SO_LINGER). Sockets of other users are therefore closed by a detached thread.
void close_without_blocking(UniqueFd socket);

/// Stops a socket from listening, and closes the connections that still wait to be accepted with
/// close_without_blocking(). Closing the listener afterwards does not block.
void stop_listening(int listener);

}  // namespace strait
