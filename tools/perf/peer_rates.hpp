#pragma once

#include <strait/strait.h>

#include "base/error.hpp"
#include "perf/floors.hpp"
#include "perf/gpu.hpp"

namespace strait::perf {

/// What this rank's copies to all others carry while all ranks make such copies: by copy engines, a stream a peer,
/// large pieces. Collective over `control`, host ranks of the same processes and threads, all of them on one host.
Result<PeerLinkRates> measure_peer_rates(Gpu& gpu, straitComm_t control);

}  // namespace strait::perf
