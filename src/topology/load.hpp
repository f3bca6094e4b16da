#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "topology/topology.hpp"

/// Topology files of any kind. An error names `where` (the file) and the line or the device.
namespace strait {

/// What NCCL writes to NCCL_TOPO_DUMP_FILE.
Result<Topology> parse_nccl_xml(std::string_view text, std::string_view where);
/// What `lstopo --of xml` writes, of hwloc 1 or 2.
Result<Topology> parse_hwloc_xml(std::string_view text, std::string_view where);

/// Strait's JSON or one of the above, told apart by content.
Result<Topology> load_topology_file(const std::string& path);

}  // namespace strait
