#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/request.hpp"
#include "topology/topology.hpp"

/// Derives from a topology which ranks are close to one another, and what is the bottleneck of simultaneous transfers.
namespace strait {

struct Level {
  std::string_view name;               ///< "nvlink", "p2p", "numa" or "host"
  std::vector<std::uint32_t> islands;  ///< island number by rank, in the order of the islands' first ranks
};

/// Returns the levels of closeness from the finest to the coarsest; each island consists of whole islands of the level
/// before. Left out are levels whose islands are single ranks (but for the host level of several ranks), levels that
/// repeat another, and levels that would split an NVLink island, such as the host if an NVLink domain spans several.
/// Ranks are GPUs or NUMA nodes.
std::vector<Level> levels_of(const Topology& topology, std::span<const DeviceId> ranks);

/// Returns the levels without their names, as algorithms take them.
Shape shape_of(const Topology& topology, std::span<const DeviceId> ranks);

/// A transfer from one GPU or NUMA node (its memory) to another.
struct Flow {
  DeviceId from = 0;
  DeviceId to = 0;
  double bytes = 0;
};

struct Load {
  ResourceId resource = 0;
  double bytes = 0;
  double time_us = 0;  ///< for these bytes at the resource's rate
};

/// Returns how long each resource is busy if all flows run at once; first the slowest one, the bottleneck. No schedule
/// takes less time than that. An error names a flow that has no path.
Result<std::vector<Load>> loads_of(const Topology& topology, std::span<const Flow> flows);

}  // namespace strait
