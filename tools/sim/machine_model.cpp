#include "sim/machine_model.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "select/known_exchange.hpp"
#include "topology/shape.hpp"
#include "topology/sysfs_files.hpp"

namespace strait {
namespace {

constexpr std::size_t most_resources = 60000;
constexpr double dram_passes_of_a_copy = 3;  // it reads the source, reads what it will overwrite, and writes

using Crossed = std::vector<ResourceId>;

std::string_view level_of(const Topology& topology, ResourceId id) {
  const std::size_t links = topology.data().links.size();
  if (id / 2 >= links) return "host memory";
  const Link& link = topology.data().links[id / 2];
  const DeviceKind lower = topology.device(link.lower).kind;
  const DeviceKind upper = topology.device(link.upper).kind;
  switch (link.kind) {
    case LinkKind::pcie:
      return lower == DeviceKind::gpu ? "GPU link" : lower == DeviceKind::nic ? "NIC" : "shared PCIe";
    case LinkKind::nvlink:
      return "NVLink";
    case LinkKind::socket:
      return "sockets";
    default:
      return lower == DeviceKind::nic || upper == DeviceKind::nic ? "NIC" : "network";
  }
}

/// Adds to the clock the resources that ranks cross, each once.
class Resources {
 public:
  Resources(const Topology& topology, Machine& machine) : topology_(topology), machine_(machine) {}

  void add(ClockPath& path, std::span<const ResourceId> crossed) {
    for (const ResourceId id : crossed) {
      const Resource& resource = topology_.resource(id);
      if (resource.bandwidth_gbps == 0) continue;
      const auto [entry, is_new] = numbers_.emplace(id, next());
      if (is_new) append({resource.name, resource.bandwidth_gbps}, level_of(topology_, id));
      path.resources.push_back(entry->second);
    }
  }

  /// Adds the CPUs of a NUMA node, which add for its GPUs, as a resource of the path.
  void add_sums(ClockPath& path, DeviceId numa, double gbps) {
    const auto [entry, is_new] = sums_.emplace(numa, next());
    if (is_new) append({topology_.device(numa).name + " sums", gbps}, "CPU sums");
    path.resources.push_back(entry->second);
  }

 private:
  std::uint16_t next() const { return static_cast<std::uint16_t>(machine_.clock.resources.size()); }
  void append(ClockResource resource, std::string_view level) {
    machine_.clock.resources.push_back(std::move(resource));
    machine_.levels.push_back(level);
  }

  const Topology& topology_;
  Machine& machine_;
  std::map<ResourceId, std::uint16_t> numbers_;
  std::map<DeviceId, std::uint16_t> sums_;
};

/// The two parts of a path: up to and including the host memory beside the sender, if it goes there, and the rest.
struct Halves {
  Crossed write, read;
};

Halves halves_of(const Topology& topology, DeviceId from, const Path& path) {
  const auto begin = path.crosses.begin(), end = path.crosses.end();
  const auto memory = topology.memory_of(topology.numa_of(from));
  const bool staged = path.kind == PathKind::host || path.kind == PathKind::net;
  const auto at = staged && memory ? std::find(begin, end, *memory) : end;
  if (at == end) return {{}, path.crosses};
  return {Crossed(begin, at + 1), Crossed(at + 1, end)};
}

/// Returns the rate of a path for the clock, which adds the time of the rank's own copy to it: chosen so that both
/// together take as long as the narrowest resource. 0: the path is no slower than the copy.
double rate_beside_copies(const Topology& topology, const Crossed& crossed, double copy_gbps) {
  double narrowest = 0;
  for (const ResourceId id : crossed) {
    const double gbps = topology.resource(id).bandwidth_gbps;
    if (gbps > 0 && (narrowest == 0 || gbps < narrowest)) narrowest = gbps;
  }
  if (narrowest == 0 || narrowest >= copy_gbps) return 0;
  return 1 / (1 / narrowest - 1 / copy_gbps);
}

Status check_ranks(std::uint32_t ranks) {
  if (ranks > most_placed_ranks)
    return fail(Code::unsupported, "the clock simulates at most " + std::to_string(most_placed_ranks) + " ranks, not " +
                                       std::to_string(ranks) + ". Take fewer with --ranks");
  return {};
}

class GpuModel {
 public:
  GpuModel(const Topology& topology, std::vector<DeviceId> gpus, const GpuRates& rates)
      : topology_(topology), gpus_(std::move(gpus)), rates_(rates), resources_(topology, machine_) {}

  Result<Machine> build() {
    machine_.name = topology_.name();
    machine_.gpus = true;
    for (const DeviceId gpu : gpus_) {
      machine_.places.push_back(topology_.device(gpu).name);
      machine_.bus_ids.push_back(topology_.device(gpu).bus_id);
    }
    PlanRequest& request = machine_.request;
    request.ranks = ranks();
    request.shape = shape_of(topology_, gpus_);
    request.peer_memory = true;
    ClockModel& clock = machine_.clock;
    clock.ranks = ranks();
    clock.call_us = rates_.call_us;
    clock.step_us = rates_.step_us;
    clock.copy_gbps = rates_.copy_gbps;
    clock.reduce_gbps = rates_.reduce_gbps;
    clock.lanes_at_once = 1024;
    STRAIT_TRY(connect());
    note_exchange();
    if (passes_host_memory_) machine_.host_sums = host_sums_of(machine_.clock);
    if (!machine_.islands.empty()) add_staged();
    return std::move(machine_);
  }

 private:
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(gpus_.size()); }

  ClockPath clock_path(const Crossed& crossed, double latency_us) {
    ClockPath path{latency_us, rate_beside_copies(topology_, crossed, rates_.copy_gbps), {}};
    resources_.add(path, crossed);
    return path;
  }

  Status connect() {
    ClockModel& clock = machine_.clock;
    for (const DeviceId from : gpus_) {
      if (clock.resources.size() > most_resources)
        return fail(Code::unsupported,
                    "these ranks cross more links than the clock can tell apart. Take fewer --ranks");
      for (const DeviceId to : gpus_) {
        const Path path = topology_.path(from, to);
        if (path.kind == PathKind::none)
          return fail(Code::unsupported, "there is no path from '" + topology_.device(from).name + "' to '" +
                                             topology_.device(to).name +
                                             "': they share no host, and no network joins "
                                             "their NICs. Add one to the topology, or take fewer --ranks");
        const Halves halves = halves_of(topology_, from, path);
        clock.paths.push_back(clock_path(halves.read, path.latency_us));
        clock.writes.push_back(clock_path(halves.write, 0));
        passes_host_memory_ |= path.kind == PathKind::host;
        if (path.kind == PathKind::host || path.kind == PathKind::net) machine_.request.peer_memory = false;
      }
    }
    return {};
  }

  /// For GPUs of one host, sets what joins them, their islands and the rates of their exchange.
  void note_exchange() {
    std::set<DeviceId> hosts, nodes;
    for (const DeviceId gpu : gpus_) {
      hosts.insert(topology_.host_of(gpu));
      nodes.insert(topology_.numa_of(gpu));
    }
    if (hosts.size() > 1) return;
    using kernels::ArenaKind;
    note_islands();
    const bool by_nvlink = machine_.islands.size() == 1 && machine_.islands.front().size() == gpus_.size();
    machine_.arena = by_nvlink || ranks() == 1 ? ArenaKind::nvlink
                     : passes_host_memory_     ? ArenaKind::host
                                               : ArenaKind::pcie;
    if (machine_.arena != ArenaKind::host) machine_.islands.clear();  // all GPUs can reach one another
    if (machine_.arena == ArenaKind::nvlink) return;
    machine_.exchange = {exchange_gbps(topology_, gpus_, passes_host_memory_),
                         rates_.host_sums_gbps * static_cast<double>(nodes.size()), true};
  }

  /// Forms islands as communicators do: each rank in turn founds one, unless it is in one already, and takes every
  /// later rank that NVLink joins to all members.
  void note_islands() {
    std::vector<bool> taken(ranks());
    for (std::uint32_t founder = 0; founder < ranks(); ++founder) {
      std::vector<std::uint32_t> island;
      for (std::uint32_t rank = founder; rank < ranks(); ++rank) {
        const auto reaches = [&](std::uint32_t member) {
          return topology_.path(gpus_[rank], gpus_[member]).kind == PathKind::nvlink;
        };
        if (taken[rank] || !std::all_of(island.begin(), island.end(), reaches)) continue;
        taken[rank] = true;
        island.push_back(rank);
      }
      if (island.size() > 1) machine_.islands.push_back(std::move(island));
    }
  }

  DeviceId numa(std::uint32_t rank) const { return topology_.numa_of(gpus_[rank]); }

  /// Returns the path from the memory beside one rank to the CPUs beside another, which read without writing a copy.
  ClockPath to_cpus(std::uint32_t from, std::uint32_t to) {
    const Path path = topology_.path(numa(from), numa(to));
    Crossed crossed = path.crosses;
    const auto memory = topology_.memory_of(numa(from));
    if (path.kind == PathKind::self && memory) crossed = {*memory};
    if (path.kind == PathKind::socket) crossed.pop_back();
    ClockPath read = clock_path(crossed, topology_.path(gpus_[from], numa(from)).latency_us + path.latency_us);
    resources_.add_sums(read, numa(to), rates_.host_sums_gbps);
    return read;
  }

  /// Returns the clock with ranks n ... 2n-1 added, which are CPUs beside the GPUs' memory.
  ClockModel host_sums_of(const ClockModel& one) {
    const std::uint32_t n = ranks();
    ClockModel two = one;
    two.ranks = 2 * n;
    two.paths.assign(std::size_t{4} * n * n, {});
    two.writes.assign(two.paths.size(), {});
    const auto at = [&](std::uint32_t from, std::uint32_t to) { return std::size_t{from} * 2 * n + to; };
    for (std::uint32_t from = 0; from < n; ++from)
      for (std::uint32_t to = 0; to < n; ++to) {
        two.paths[at(from, to)] = one.paths[from * n + to];
        two.writes[at(from, to)] = one.writes[from * n + to];
        const Path up = topology_.path(gpus_[from], numa(from)), down = topology_.path(numa(from), gpus_[to]);
        two.writes[at(from, n + to)] = clock_path(up.crosses, 0);
        two.paths[at(from, n + to)] = to_cpus(from, to);
        if (from == to) {  // the CPUs read the part of their own GPU in place
          Crossed crossed = up.crosses;
          two.paths[at(from, n + to)] = clock_path(crossed, up.latency_us);
          resources_.add_sums(two.paths[at(from, n + to)], numa(from), rates_.host_sums_gbps);
        }
        const auto memory = topology_.memory_of(numa(from));
        if (memory && from != to) two.writes[at(n + from, to)] = clock_path({*memory}, 0);
        two.paths[at(n + from, to)] = clock_path(down.crosses, down.latency_us);
      }
    two.resources = machine_.clock.resources;
    return two;
  }

  /// Adds the clocks in which the GPUs of an island exchange through host memory, as all others do.
  void add_staged() {
    ClockModel staged = machine_.clock;
    for (const auto& island : machine_.islands)
      for (const std::uint32_t from : island)
        for (const std::uint32_t to : island) {
          if (from == to) continue;
          const Path up = topology_.path(gpus_[from], numa(from)), down = topology_.path(numa(from), gpus_[to]);
          staged.writes[from * ranks() + to] = clock_path(up.crosses, 0);
          staged.paths[from * ranks() + to] = clock_path(down.crosses, up.latency_us + down.latency_us);
        }
    staged.resources = machine_.clock.resources;
    machine_.staged_host_sums = host_sums_of(staged);
    machine_.staged = std::move(staged);
  }

  const Topology& topology_;
  std::vector<DeviceId> gpus_;
  const GpuRates& rates_;
  Machine machine_{.levels = {"CPU", "DRAM"}};
  Resources resources_;
  bool passes_host_memory_ = false;
};

}  // namespace

Result<Machine> place_on_gpus(const Topology& topology, std::uint32_t ranks, const GpuRates& rates) {
  std::vector<DeviceId> gpus = topology.all(DeviceKind::gpu);
  if (gpus.empty())
    return fail(Code::unsupported, "'" + topology.name() + "' has no GPU. Place ranks on its CPUs instead");
  if (ranks > gpus.size())
    return fail(Code::invalid_argument, std::to_string(ranks) + " ranks are more than the " +
                                            std::to_string(gpus.size()) + " GPUs of '" + topology.name() +
                                            "'. Take fewer ranks, or describe a larger machine in a file");
  if (ranks > 0) gpus.resize(ranks);
  STRAIT_TRY(check_ranks(static_cast<std::uint32_t>(gpus.size())));
  return GpuModel(topology, std::move(gpus), rates).build();
}

Machine without_islands(const Machine& machine) {
  Machine staged = machine;
  if (!machine.staged) return staged;
  staged.clock = *machine.staged;
  staged.host_sums = machine.staged_host_sums;
  staged.islands.clear();
  staged.request.shape.levels.erase(staged.request.shape.levels.begin());  // the NVLink level
  return staged;
}

Result<Machine> place_on_cpus(const Topology& topology, std::uint32_t ranks, const HostRates& rates) {
  const std::vector<DeviceId> numas = topology.all(DeviceKind::numa);
  std::vector<DeviceId> cpus;  // the NUMA node of each CPU
  double memory_gbps = 0;
  for (const DeviceId numa : numas) {
    if (topology.host_of(numa) != topology.host_of(numas.front())) continue;  // host ranks stay on one host
    cpus.insert(cpus.end(), std::max<std::size_t>(1, parse_cpu_list(topology.device(numa).cpus).size()), numa);
    memory_gbps += topology.device(numa).memory_gbps;
  }
  if (cpus.empty()) return fail(Code::unsupported, "'" + topology.name() + "' has no NUMA node to place ranks on");
  STRAIT_TRY(check_ranks(ranks));
  Machine machine{.name = topology.name(), .levels = {"CPU", "DRAM"}};
  machine.request.ranks = ranks > 0 ? ranks : static_cast<std::uint32_t>(cpus.size());
  HostRates own = rates;
  if (memory_gbps > 0) own.dram_copy_gbps = memory_gbps / dram_passes_of_a_copy;
  machine.clock = host_model(machine.request.ranks, static_cast<std::uint32_t>(cpus.size()), own);
  std::vector<DeviceId> place;
  for (std::uint32_t rank = 0; rank < machine.request.ranks; ++rank) place.push_back(cpus[rank % cpus.size()]);
  for (const DeviceId numa : place) machine.places.push_back(topology.device(numa).name);
  Resources resources(topology, machine);
  for (std::uint32_t from = 0; from < machine.request.ranks; ++from)
    for (std::uint32_t to = 0; to < machine.request.ranks; ++to) {
      if (place[from] == place[to]) continue;
      const Path path = topology.path(place[from], place[to]);
      Crossed between(path.crosses);  // the clock models the memories already
      std::erase_if(between, [&](ResourceId id) { return level_of(topology, id) == "host memory"; });
      ClockPath& crossed = machine.clock.paths[from * machine.request.ranks + to];
      crossed.latency_us += path.latency_us;
      resources.add(crossed, between);
    }
  return machine;
}

}  // namespace strait
