#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait::shm {

/// Makes a zeroed file of request.segment_bytes in /dev/shm that all ranks open. It is unlinked as soon as they have,
/// or on failure. Its name comes from the secret, and the file also contains the password, so that no rank takes
/// another file for it. All its memory is reserved immediately: if /dev/shm is too small, this call fails, rather than
/// a later access by SIGBUS. Collective.
Result<UniqueFd> share_file(const RendezvousRequest& request);

}  // namespace strait::shm
