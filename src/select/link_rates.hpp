#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

/// Measured rates of a machine's links, between the calibration file and the topology.
namespace strait {

/// 16 hexadecimal digits that stand for what links there are: devices, their PCI addresses, and what joins them. A
/// container that sees other GPUs is another machine; rates and host names play no part.
std::string topology_fingerprint(const Topology& topology);

/// What was measured of the links inside hosts.
std::vector<LinkRate> link_rates_of(const Topology& topology);

/// The topology with those rates that the calibration holds of it, if any, and a note that says so. Rates that do not
/// fit are worth a warning and left out.
Topology with_known_rates(Topology topology, const KnownRates& known);

}  // namespace strait
