#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

/// Measured rates of a machine's links and GPUs, between the calibration file and the topology.
namespace strait {

/// 16 hexadecimal digits that stand for what links there are: devices, their PCI addresses, and what joins them. A
/// container that sees other GPUs is another machine; rates and host names play no part.
std::string topology_fingerprint(const Topology& topology);

/// What was measured of the links inside hosts.
std::vector<LinkRate> link_rates_of(const Topology& topology);

/// What a rank on a GPU of this machine costs apart from links: as the calibration says, or the shipped defaults.
GpuRates known_gpu_rates(const Topology& topology, const KnownRates& known);

/// The topology with those rates that the calibration holds of it, if any, and a note that says so. Rates that do not
/// fit are worth a warning and left out.
Topology with_known_rates(Topology topology, const KnownRates& known);

}  // namespace strait
