#pragma once

#include "base/error.hpp"
#include "doctor/team.hpp"
#include "plan/clock.hpp"

namespace strait::doctor {

/// Measures the rates of this machine's processors and memory with the library's own copies and sums. Takes about a
/// second.
HostRates measure_memory();

/// Measures the rates between cores, with all threads of the team at the same time, and reports those of the slowest
/// thread: fetch_gbps (a copy of what a neighbouring thread has just written), replace_gbps (a copy over what a
/// neighbour has just read), and replace_beside_gbps (the same with a buffer of its own as a second destination).
void measure_between_cores(Team& team, HostRates& rates);

/// Measures the cost of calls, steps, signals and thread switches. The memory rates must be known. Returns an error if
/// the library does not run here.
Status measure_overheads(HostRates& rates);

}  // namespace strait::doctor
