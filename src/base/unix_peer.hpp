#pragma once

#include <sys/types.h>

#include <optional>

#include "base/unique_fd.hpp"

/// Unix sockets at which anybody of this host may knock.
namespace strait {

/// Whose process is at the other end; nothing where the kernel does not say.
std::optional<uid_t> user_behind(int socket);

/// Hangs up and closes a socket. What another user has sent through it may be descriptors, and the last close of one
/// may wait for as long as that user likes (a TCP connection with SO_LINGER): a thread that nobody waits for does it
/// then.
void part_from(UniqueFd socket);

/// Has a socket listen no more, and parts from all who still wait there: whoever closes it then has nothing to wait
/// for.
void stop_listening(int listener);

}  // namespace strait
