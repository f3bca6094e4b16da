#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

namespace strait::doctor {

/// The measured rates of the GPUs' links.
struct MeasuredLinks {
  std::string machine;  ///< topology_fingerprint()
  std::vector<LinkRate> rates;
};
/// Measures for a few seconds. `topology` must be as detected, without rates measured earlier. `origin` says how and
/// when the rates were measured. Returns Code::unsupported if there is no GPU or no driver.
Result<MeasuredLinks> measure_links(const Topology& topology, const std::string& origin,
                                    const std::string& library = "libcuda.so.1");

/// Lists each measured rate beside the one that the topology assumes.
std::string links_text(const Topology& topology, const MeasuredLinks& links);

}  // namespace strait::doctor
