#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "topology/topology.hpp"

/// Topologies as text: Strait's JSON (docs/topology.md). An error names `where` (the file) and the line or the device.
namespace strait {

Result<Topology> parse_topology_json(std::string_view text, std::string_view where);
std::string to_json(const Topology& topology);

/// Machines that come with Strait.
struct Fixture {
  std::string_view name;  ///< "10x-rtx3090"
  std::string_view json;
};
std::span<const Fixture> fixtures();
Result<Topology> load_fixture(std::string_view name);

}  // namespace strait
