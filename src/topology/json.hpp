#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "topology/topology.hpp"

/// Topologies as text in Strait's JSON (docs/topology.md). An error names `where` (the file) and the line or the
/// device.
namespace strait {

Result<Topology> parse_topology_json(std::string_view text, std::string_view where);
std::string to_json(const Topology& topology);

}  // namespace strait
