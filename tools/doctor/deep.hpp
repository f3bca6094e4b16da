#pragma once

#include "doctor/finding.hpp"

namespace strait::doctor {

/// Runs verified collectives on a host rank for each usable core (at least two) for a few seconds, each bound to its
/// core: whether results are right, and which rank is slower at its own work than the others.
Findings check_under_load();

/// Likewise on all GPUs that this process sees: verified collectives, each GPU's own work, host links, and every pair.
/// Half a minute. Nothing where there is no GPU.
Findings check_gpus_under_load();

}  // namespace strait::doctor
