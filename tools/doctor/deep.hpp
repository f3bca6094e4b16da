#pragma once

#include "doctor/finding.hpp"

namespace strait::doctor {

/// Runs verified collectives for a few seconds, with one host rank bound to each usable core (at least two ranks).
/// Reports wrong results, and ranks that are slower at their own work than the others.
Findings check_under_load();

/// The same for all GPUs that this process sees. Takes about half a minute, and measures in addition each GPU's own
/// work, the host links, and all pairs of GPUs. Returns no findings if there is no GPU.
Findings check_gpus_under_load();

}  // namespace strait::doctor
