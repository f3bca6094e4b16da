#pragma once

#include <string>
#include <vector>

#include "doctor/finding.hpp"
#include "topo/measurements.hpp"

/// What `strait doctor --deep` makes of what it has measured: which GPU, link or rank is slower than others like it.
/// Measures nothing.
namespace strait::doctor {

/// Those that take clearly longer than the middle one for the same work, which waits for nobody. `names`: "rank 3 on
/// core 7".
Findings judge_work(const std::string& check, const std::vector<std::string>& names, const std::vector<double>& own_us,
                    const std::string& fix);

/// Host links and pairs of GPUs against others of the same machine. `expected_gbps` of pairs, by the topology: it makes
/// links of different kinds comparable; 0: nothing is expected. Where most pairs of a GPU are slow, the GPU is named
/// instead of each.
Findings judge_links(const topo::GpuMeasurements& gpus, const topo::Matrix& expected_gbps);

/// What the topology says of each pair, in the order of the measurements.
topo::Matrix expected_pairs(const Topology& topology, const topo::GpuMeasurements& gpus);

}  // namespace strait::doctor
