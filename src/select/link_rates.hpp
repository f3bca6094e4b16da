#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

/// Transfers measured rates of a machine's links and GPUs between the calibration file and the topology.
namespace strait {

/// Returns 16 hexadecimal digits, a hash of the machine's devices, their PCI addresses, and the links between them. A
/// container that sees other GPUs counts as another machine; rates and host names have no influence.
std::string topology_fingerprint(const Topology& topology);

/// Returns the measured rates of the links inside hosts.
std::vector<LinkRate> link_rates_of(const Topology& topology);

/// Returns the costs of a GPU rank on this machine apart from links: the calibrated ones, else the shipped defaults.
GpuRates known_gpu_rates(const Topology& topology, const KnownRates& known);

/// Returns the topology with the rates that the calibration holds for it, if any, and a note that says so. Rates that
/// do not fit the topology are left out with a warning.
Topology with_known_rates(Topology topology, const KnownRates& known);

}  // namespace strait
