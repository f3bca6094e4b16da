#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

namespace strait::doctor {

/// What GPUs' links were found to give.
struct MeasuredLinks {
  std::string machine;  ///< topology_fingerprint()
  std::vector<LinkRate> rates;
};
/// Some seconds. Code::unsupported: there is no GPU, or no driver. `topology` as detected, without earlier rates.
Result<MeasuredLinks> measure_links(const Topology& topology, const std::string& origin,
                                    const std::string& library = "libcuda.so.1");

/// Each rate beside what the topology assumes.
std::string links_text(const Topology& topology, const MeasuredLinks& links);

}  // namespace strait::doctor
