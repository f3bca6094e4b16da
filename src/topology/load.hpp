#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "topology/topology.hpp"

/// Reads topology files of any format. An error names `where` (the file) and the line or the device.
namespace strait {

/// Parses what NCCL writes to NCCL_TOPO_DUMP_FILE.
Result<Topology> parse_nccl_xml(std::string_view text, std::string_view where);
/// Parses what `lstopo --of xml` of hwloc 1 or 2 writes.
Result<Topology> parse_hwloc_xml(std::string_view text, std::string_view where);

/// Reads a file in Strait's JSON or one of the above formats, which it recognises by the content.
Result<Topology> load_topology_file(const std::string& path);

}  // namespace strait
