#pragma once

#include <string>

#include "topology/topology.hpp"

/// Prints topologies for people. The JSON for programs is in json.hpp.
namespace strait {

/// Returns a table like that of `nvidia-smi topo -m`, with rates, the reasons for missing P2P, and further details. Of
/// several hosts, only the first is shown in full.
std::string to_table(const Topology& topology);

/// Returns a drawing. Hosts that are alike are drawn once.
std::string to_svg(const Topology& topology);

/// Formats a rate with about three digits: "3", "12.5", "160".
std::string rate_text(double gbps);

}  // namespace strait
