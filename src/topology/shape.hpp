#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/request.hpp"
#include "topology/topology.hpp"

/// What follows from a topology: which ranks are close, and what binds when many move bytes at once.
namespace strait {

struct Level {
  std::string_view name;               ///< "nvlink", "p2p", "numa" or "host"
  std::vector<std::uint32_t> islands;  ///< of every rank; numbered in the order of their first ranks
};

/// From the finest to the coarsest; each joins whole islands of the one before. Levels that join nobody or repeat
/// another are left out; so is the host where an NVLink domain goes beyond it. Ranks are GPUs or NUMA nodes.
std::vector<Level> levels_of(const Topology& topology, std::span<const DeviceId> ranks);

/// The same without names, as algorithms take it.
Shape shape_of(const Topology& topology, std::span<const DeviceId> ranks);

/// Bytes from one GPU or NUMA node (its memory) to another.
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

/// What the flows, all at once, ask of each resource: the slowest, which binds, first. No schedule does it in less
/// time. An error names the flow that has no path.
Result<std::vector<Load>> loads_of(const Topology& topology, std::span<const Flow> flows);

}  // namespace strait
