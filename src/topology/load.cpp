#include "topology/load.hpp"

#include <array>
#include <cerrno>
#include <fstream>

#include "topology/json.hpp"

namespace strait {
namespace {

/// Reads a file, or a pipe, as in `--from <(ssh host strait topo --json)`.
Result<std::string> content_of(const std::string& path) {
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (text.size() <= most_bytes && (in.read(buffer.data(), buffer.size()), in.gcount() > 0))
    text.append(buffer.data(), static_cast<std::size_t>(in.gcount()));
  if (!in.is_open() || in.bad())
    return fail_errno("cannot read the topology file '" + path + "'", errno == 0 ? EIO : errno);
  if (text.size() > most_bytes) return fail(Code::invalid_argument, path + " is far too long to describe a machine");
  return text;
}

}  // namespace

Result<Topology> load_topology_file(const std::string& path) {
  STRAIT_ASSIGN(const std::string text, content_of(path));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return fail(Code::invalid_argument, path + " is empty");
  if (text[first] != '<') return parse_topology_json(text, path);
  // The root element of hwloc's XML is <topology>. Everything else is passed to the reader of NCCL's XML, whose errors
  // say more.
  return text.find("<topology") != std::string::npos ? parse_hwloc_xml(text, path) : parse_nccl_xml(text, path);
}

}  // namespace strait
