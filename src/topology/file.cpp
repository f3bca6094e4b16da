#include "topology/file.hpp"

#include <cerrno>
#include <fstream>
#include <sstream>

#include "topology/files.hpp"

namespace strait {

Result<Topology> load_topology_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  if (!in || !(content << in.rdbuf()))
    return fail_errno("cannot read the topology file '" + path + "'", errno == 0 ? EIO : errno);
  const std::string text = content.str();
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return fail(Code::invalid_argument, path + " is empty");
  if (text[first] != '<') return parse_topology_json(text, path);
  // hwloc's root is <topology>, and names its document type; anything else is taken for NCCL's, whose reader says more.
  return text.find("<topology") != std::string::npos ? parse_hwloc_xml(text, path) : parse_nccl_xml(text, path);
}

}  // namespace strait
