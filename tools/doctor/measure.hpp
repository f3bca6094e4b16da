#pragma once

#include "base/error.hpp"
#include "doctor/team.hpp"
#include "plan/clock.hpp"

namespace strait::doctor {

/// The rates of this machine's processors and memory, by the library's own copies and sums. About a second.
HostRates measure_memory();

/// Of those: what the team's threads copy that a neighbour has just written (fetch_gbps), or over what it has just read
/// (replace_gbps; with a buffer of its own beside, replace_beside_gbps), all at once; the slowest thread's.
void measure_between_cores(Team& team, HostRates& rates);

/// What calls, steps, signals and switches cost; needs the memory rates. An error: the library does not run here.
Status measure_overheads(HostRates& rates);

}  // namespace strait::doctor
