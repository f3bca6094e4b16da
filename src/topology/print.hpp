#pragma once

#include <string>

#include "topology/topology.hpp"

/// Topologies for people. The JSON for programs is in json.hpp.
namespace strait {

/// Like `nvidia-smi topo -m`, with rates, the reason for each missing P2P, and what else a person wants to know. Of
/// several hosts the first one in full.
std::string to_table(const Topology& topology);

/// A drawing; hosts that are alike are drawn once.
std::string to_svg(const Topology& topology);

/// "3", "12.5", "160"
std::string rate_text(double gbps);

}  // namespace strait
