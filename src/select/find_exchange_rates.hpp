#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "select/exchange_rates.hpp"
#include "topology/topology.hpp"

/// What the GPUs of a machine give while all exchange with all.
namespace strait {

/// Of the slowest GPU each way, by what the GPUs share: every resource serves all that cross it. `through_host`: by the
/// memory beside the sender, also where P2P would work. 0: no limit known.
double exchange_gbps(const Topology& topology, std::span<const DeviceId> gpus, bool through_host);

/// Whether the rates between these GPUs and the memory beside them are more than assumptions: each way was measured, or
/// its links tell their speed.
bool knows_rates(const Topology& topology, std::span<const DeviceId> gpus);

/// Of the GPUs with these PCI addresses, by the topology with what the calibration knows of it. Nothing that is only
/// assumed: unknown instead, and sockets that nobody measured are no limit. What CPUs add is known where it was
/// measured.
ExchangeRates exchange_rates(const Topology& topology, const KnownRates& known, const std::vector<std::string>& bus_ids,
                             bool through_host);

}  // namespace strait
