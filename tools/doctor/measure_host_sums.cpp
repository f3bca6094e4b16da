#include "doctor/measure_host_sums.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

#include "base/environment.hpp"
#include "doctor/measure_rate.hpp"
#include "executor/host/reduce.hpp"
#include "topology/sysfs_files.hpp"

namespace strait::doctor {
namespace {

constexpr std::size_t source_bytes = 2 << 20, chunk_bytes = 24 << 10;
constexpr std::size_t most_sources = 16;
constexpr int times = 15;

struct Node {
  std::size_t gpus = 0;
  std::vector<int> cores;  ///< the cores to which threads are pinned
};

/// Returns the NUMA nodes that have GPUs, each with at most half of its cores, because the program needs the others.
std::vector<Node> nodes_of(const Topology& topology) {
  std::map<DeviceId, Node> nodes;
  for (const DeviceId gpu : topology.all(DeviceKind::gpu)) ++nodes[topology.numa_of(gpu)].gpus;
  const std::vector<int> usable = usable_cores();
  const auto threads_of_a_gpu = static_cast<std::size_t>(Environment().integer("STRAIT_CPU_REDUCERS").value_or(1));
  std::vector<Node> all;
  for (auto& [numa, node] : nodes) {
    for (const int core : parse_cpu_list(topology.device(numa).cpus))
      if (std::find(usable.begin(), usable.end(), core) != usable.end()) node.cores.push_back(core);
    if (node.cores.empty()) node.cores = usable;
    node.cores.resize(std::min(threads_of_a_gpu * node.gpus, (node.cores.size() + 1) / 2));
    all.push_back(std::move(node));
  }
  return all;
}

}  // namespace

double measure_host_sums_gbps(const Topology& topology) {
  const std::vector<Node> nodes = nodes_of(topology);
  std::vector<int> cores;
  std::size_t gpus = 0;
  for (const Node& node : nodes) {
    cores.insert(cores.end(), node.cores.begin(), node.cores.end());
    gpus += node.gpus;
  }
  if (gpus == 0) return 0;
  const std::size_t sources = std::clamp(gpus, std::size_t{2}, most_sources);
  Team team(cores);
  // By thread. Each thread touches its own buffers first; the last one is for the result.
  std::vector<std::vector<Bytes>> memory(cores.size());
  const auto add = [&](int thread) {
    std::vector<Bytes>& mine = memory[static_cast<std::size_t>(thread)];
    while (mine.size() <= sources) mine.emplace_back(source_bytes);
    std::array<ReduceSource, most_sources> from;
    for (std::size_t at = 0; at < source_bytes; at += chunk_bytes) {
      for (std::size_t i = 0; i < sources; ++i) from[i].pointer = mine[i].data() + at;
      const ReduceDestination result{.pointer = mine[sources].data() + at};
      reduce({.sources = {from.data(), sources},
              .destinations = {&result, 1},
              .count = std::min(chunk_bytes, source_bytes - at) / sizeof(float),
              .final = true,
              .ranks = static_cast<std::uint32_t>(sources)});
    }
  };
  const double of_a_thread = rate_of(team, sources * source_bytes, times, add);
  double slowest = std::numeric_limits<double>::max();
  for (const Node& node : nodes) slowest = std::min(slowest, of_a_thread * static_cast<double>(node.cores.size()));
  return slowest;
}

}  // namespace strait::doctor
