#pragma once

#include "doctor/finding.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

namespace strait::doctor {

/// Whether what GPUs that NVLink does not join give together has been measured: communicators go by it. Nothing where
/// there are no two such GPUs.
Findings check_calibration(const Topology& topology, const KnownRates& known);

}  // namespace strait::doctor
