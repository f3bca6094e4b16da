#pragma once

#include <strait/strait.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/error.hpp"

/// What ranks tell one another beside what is measured: by sends and receives. Those have one plan, so that an
/// algorithm that is forced (STRAIT_ALGORITHM, a tuning file) leaves them alone, and the library's one warning of what
/// that costs is left for a call that is measured. All are collective over `comm`, a communicator of host ranks.
namespace strait::perf {

/// Everyone's `bytes`, in the order of ranks. `what` begins the error.
Status all_gather(straitComm_t comm, const void* mine, void* all, std::size_t bytes, const char* what);
/// Rank 0's.
Status broadcast(straitComm_t comm, void* data, std::size_t bytes, const char* what);

/// What --average and the checks make of all ranks' values.
enum class Combination : std::uint8_t { sum, mean, min, max };
Status all_reduce(straitComm_t comm, double& value, Combination combination);
Status all_reduce(straitComm_t comm, std::int64_t& value, Combination combination);

/// Whether all ranks can go on, as far as each knows of itself. Of those that cannot, and say the same, the first says
/// it, before any of them leaves: launchers end a job when a rank has ended.
bool all_go_on(straitComm_t comm, const Status& mine, const std::function<void(const Error&)>& say);

}  // namespace strait::perf
