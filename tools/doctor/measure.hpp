#pragma once

#include "base/error.hpp"
#include "plan/clock.hpp"

namespace strait::doctor {

/// The rates of this machine's processors and memory, by the library's own copies and sums. A few seconds.
void measure_memory(HostRates& rates);

/// What calls, steps, signals and switches cost; needs the memory rates. An error: the library does not run here.
Status measure_overheads(HostRates& rates);

}  // namespace strait::doctor
