#pragma once

#include <functional>

#include "base/error.hpp"
#include "perf/floors.hpp"
#include "perf/gpu.hpp"

namespace strait::perf {

/// What this rank's link to the host gives while all ranks measure theirs, by copy engines and pinned memory; some
/// seconds where links are slow. Collective: `barrier` waits for all ranks.
Result<HostLinkRates> measure_host_rates(Gpu& gpu, const std::function<Status()>& barrier);

}  // namespace strait::perf
