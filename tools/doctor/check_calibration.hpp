#pragma once

#include "doctor/finding.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

namespace strait::doctor {

/// Checks whether the rates that GPUs have together were measured, if NVLink does not join all of them: communicators
/// depend on these rates. Returns no findings if there are no two such GPUs.
Findings check_calibration(const Topology& topology, const KnownRates& known);

}  // namespace strait::doctor
