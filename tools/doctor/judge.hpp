#pragma once

#include <string>
#include <vector>

#include "doctor/finding.hpp"
#include "topo/measurements.hpp"

/// How `strait doctor --deep` judges its measurements: which GPU, link or rank is slower than others like it. Nothing
/// is measured here.
namespace strait::doctor {

/// Reports who takes clearly longer than the median for the same work, which depends on no other rank. `names` are for
/// the findings: "rank 3 on core 7".
Findings judge_work(const std::string& check, const std::vector<std::string>& names, const std::vector<double>& own_us,
                    const std::string& fix);

/// Compares host links, and pairs of GPUs, with others of the same machine. `expected_gbps` are the rates of pairs
/// according to the topology, which make links of different kinds comparable; 0: unknown. If most pairs of a GPU are
/// slow, the GPU is reported instead of each pair.
Findings judge_links(const topo::GpuMeasurements& gpus, const topo::Matrix& expected_gbps);

/// Returns the bandwidth of each pair according to the topology, in the order of the measurements.
topo::Matrix expected_pairs(const Topology& topology, const topo::GpuMeasurements& gpus);

}  // namespace strait::doctor
