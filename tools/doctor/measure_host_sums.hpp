#pragma once

#include "topology/topology.hpp"

namespace strait::doctor {

/// What the CPUs of a NUMA node add up for its GPUs while those of all nodes do, in GB/s of all sources: as many
/// threads as communicators of all GPUs start, at sums of all GPUs' parts out of DRAM. (GPUs may write into the caches;
/// then it is more.) The slowest node's. 0: there is no GPU. Some tenths of a second.
double measure_host_sums_gbps(const Topology& topology);

}  // namespace strait::doctor
