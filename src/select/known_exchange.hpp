#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "select/exchange_rates.hpp"
#include "topology/topology.hpp"

/// The rates of a machine's GPUs while all exchange with all.
namespace strait {

/// Returns the rate of the slowest GPU each way while all GPUs exchange equal amounts with all others; everything that
/// crosses a resource shares it. With `through_host`, bytes pass the memory beside the sender even where P2P would
/// work. 0: no limit is known.
double exchange_gbps(const Topology& topology, std::span<const DeviceId> gpus, bool through_host);

/// Whether the rates between these GPUs and the memory beside them are known rather than assumed: for each GPU both
/// directions were measured, or all its PCIe links report their speed and width.
bool knows_rates(const Topology& topology, std::span<const DeviceId> gpus);

/// Returns the rates of the GPUs with these PCI addresses, from the topology and its calibration. A rate that would
/// rest on assumptions is unknown (0); links between sockets that were not measured count as unlimited. The rate of CPU
/// sums is known only if it was measured.
ExchangeRates known_exchange_rates(const Topology& topology, const KnownRates& known,
                                   const std::vector<std::string>& bus_ids, bool through_host);

}  // namespace strait
