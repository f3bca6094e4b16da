#pragma once

#include "topology/topology.hpp"

namespace strait::doctor {

/// Measures how fast the CPUs of a NUMA node add up data for its GPUs, in GB/s of all sources, while the CPUs of all
/// nodes do. There are as many threads as communicators of all GPUs start; each adds up parts of all GPUs out of DRAM.
/// (GPUs may write into the CPUs' caches; then the real rate is higher.) Returns the rate of the slowest node, or 0 if
/// there is no GPU. Takes some tenths of a second.
double measure_host_sums_gbps(const Topology& topology);

}  // namespace strait::doctor
