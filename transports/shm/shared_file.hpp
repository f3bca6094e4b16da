#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait::shm {

/// A zeroed file of request.segment_bytes in /dev/shm, opened by all ranks and unlinked as soon as they have, or on
/// failure. The secret gives its name and is kept in it, so that nobody takes another file for it. All its memory is
/// taken at once: where /dev/shm is too small, that is this call's error and not a SIGBUS later. Collective.
Result<UniqueFd> share_file(const RendezvousRequest& request);

}  // namespace strait::shm
