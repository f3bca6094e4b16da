#include <algorithm>
#include <deque>

#include "topology/topology.hpp"

namespace strait {

/// Returns the device and all devices above it, up to its host.
std::vector<DeviceId> Topology::ancestors(DeviceId id) const {
  std::vector<DeviceId> chain;
  for (; id != no_device; id = device(id).parent) chain.push_back(id);
  return chain;
}

/// Appends the link between two neighbours. Returns whether they are neighbours. A device in the tree without a link
/// (an integrated device) adds nothing.
bool Topology::append(std::vector<ResourceId>& crosses, DeviceId from, DeviceId to) const {
  const Hop* next = hop(from, to);
  if (next != nullptr) crosses.push_back(next->resource);
  return next != nullptr || device(from).parent == to || device(to).parent == from;
}

/// Appends a route of links of one kind with the fewest links. Returns whether there is one.
bool Topology::route(DeviceId from, DeviceId to, LinkKind kind, std::vector<ResourceId>& crosses) const {
  std::map<DeviceId, Hop> came_by{{from, {from, 0}}};  // device -> previous device and resource
  std::deque<DeviceId> open{from};
  while (!open.empty() && !came_by.contains(to)) {
    const DeviceId here = open.front();
    open.pop_front();
    for (const Hop& next : hops_[here])
      if (data_.links[next.resource / 2].kind == kind && came_by.emplace(next.to, Hop{here, next.resource}).second)
        open.push_back(next.to);
  }
  if (!came_by.contains(to)) return false;
  std::vector<ResourceId> reversed;
  for (DeviceId here = to; here != from; here = came_by.at(here).to) reversed.push_back(came_by.at(here).resource);
  crosses.insert(crosses.end(), reversed.rbegin(), reversed.rend());
  return true;
}

/// Appends the path within a host: up the tree to where the two branches meet, between sockets if they meet at the
/// host, and down again. Returns whether there is one.
bool Topology::climb(DeviceId from, DeviceId to, std::vector<ResourceId>& crosses) const {
  const std::vector<DeviceId> up = ancestors(from), down = ancestors(to);
  std::size_t i = 0, j = 0;  // the positions in the two chains where they meet
  const auto meets = [&](DeviceId id) { return std::find(down.begin(), down.end(), id); };
  while (i < up.size() && meets(up[i]) == down.end()) ++i;
  if (i == up.size()) return false;
  j = static_cast<std::size_t>(meets(up[i]) - down.begin());
  const bool crosses_sockets = device(up[i]).kind == DeviceKind::host && i > 0 && j > 0;
  if (crosses_sockets) --i, --j;
  for (std::size_t k = 0; k < i; ++k)
    if (!append(crosses, up[k], up[k + 1])) return false;
  if (crosses_sockets && !route(up[i], down[j], LinkKind::socket, crosses)) return false;
  for (std::size_t k = j; k > 0; --k)
    if (!append(crosses, down[k], down[k - 1])) return false;
  return true;
}

/// Appends the path over a direct NVLink or one NVLink switch. Returns whether there is one.
bool Topology::through_nvlink(DeviceId from, DeviceId to, std::vector<ResourceId>& crosses) const {
  const auto is_nvlink = [&](const Hop& h) { return data_.links[h.resource / 2].kind == LinkKind::nvlink; };
  if (const Hop* direct = hop(from, to); direct != nullptr && is_nvlink(*direct)) {
    crosses.push_back(direct->resource);
    return true;
  }
  for (const Hop& up : hops_[from]) {
    if (!is_nvlink(up) || device(up.to).kind != DeviceKind::nvswitch) continue;
    if (const Hop* down = hop(up.to, to)) {
      crosses.insert(crosses.end(), {up.resource, down->resource});
      return true;
    }
  }
  return false;
}

/// Appends the path into the memory of the sender's NUMA node, and out of it to the receiver.
bool Topology::through_memory(DeviceId from, DeviceId to, std::vector<ResourceId>& crosses) const {
  const DeviceId numa = numa_[from];
  if (!climb(from, numa, crosses)) return false;
  crosses.insert(crosses.end(), {memory_.at(numa), memory_.at(numa)});
  return climb(numa, to, crosses);
}

bool Topology::joined_by_nvlink(DeviceId from, DeviceId to) const {
  const auto status = data_.p2p.find({from, to});
  std::vector<ResourceId> unused;
  return (status == data_.p2p.end() || status->second == P2pStatus::ok) && through_nvlink(from, to, unused);
}

P2pStatus Topology::p2p(DeviceId from, DeviceId to) const {
  const auto found = data_.p2p.find({from, to});
  if (found != data_.p2p.end()) return found->second;
  if (joined_by_nvlink(from, to)) return P2pStatus::ok;
  return host_[from] == host_[to] ? device(host_[from]).p2p : P2pStatus::not_supported;
}

Path Topology::inside_host(DeviceId from, DeviceId to) const {
  Path path;
  const bool from_gpu = device(from).kind == DeviceKind::gpu, to_gpu = device(to).kind == DeviceKind::gpu;
  bool exists = false;
  if (from_gpu && to_gpu) {
    path.reason = p2p(from, to);
    path.kind = path.reason == P2pStatus::ok ? PathKind::pcie : PathKind::host;
    exists = path.kind == PathKind::pcie ? climb(from, to, path.crosses) : through_memory(from, to, path.crosses);
  } else {
    path.kind = from_gpu || to_gpu ? PathKind::pcie : PathKind::socket;
    if (!from_gpu) path.crosses.push_back(memory_.at(from));
    exists = climb(from, to, path.crosses);
    if (!to_gpu) path.crosses.push_back(memory_.at(to));
  }
  if (!exists) path = Path{};
  return path;
}

DeviceId Topology::nic_of(DeviceId id) const {
  const std::vector<DeviceId> chain = ancestors(id);
  const std::vector<DeviceId>& members = members_.at(host_[id]);
  std::vector<DeviceId> nearest;
  std::size_t nearest_distance = chain.size();
  for (const DeviceId nic : members) {
    if (device(nic).kind != DeviceKind::nic) continue;
    const bool connected = std::any_of(hops_[nic].begin(), hops_[nic].end(), [&](const Hop& h) {
      return data_.links[h.resource / 2].kind == LinkKind::network;
    });
    if (!connected) continue;
    const std::vector<DeviceId> other = ancestors(nic);
    const auto meets = std::find_if(chain.begin(), chain.end(), [&](DeviceId a) {
      return std::find(other.begin(), other.end(), a) != other.end();
    });
    const auto distance = static_cast<std::size_t>(meets - chain.begin());
    if (distance < nearest_distance) nearest.clear();
    if (distance <= nearest_distance) nearest.push_back(nic);
    nearest_distance = std::min(distance, nearest_distance);
  }
  if (nearest.empty()) return no_device;
  std::size_t turn = 0;  // number of earlier GPUs (or NUMA nodes) of this host that have the same choice of NICs
  for (const DeviceId sibling : members) {
    if (sibling >= id || device(sibling).kind != device(id).kind) continue;
    const std::vector<DeviceId> other = ancestors(sibling);
    if (std::find(other.begin(), other.end(), chain[nearest_distance]) != other.end()) ++turn;
  }
  return nearest[turn % nearest.size()];
}

Path Topology::between_hosts(DeviceId from, DeviceId to) const {
  Path path;
  path.from_nic = nic_of(from);
  path.to_nic = nic_of(to);
  if (path.from_nic == no_device || path.to_nic == no_device) return {};
  // Without GPUDirect, and if the end is a NUMA node's memory, the NIC accesses host memory. The bytes of a GPU pass
  // that memory twice, written and read.
  const auto reaches_gpu = [&](DeviceId id) {
    return device(id).kind == DeviceKind::gpu && device(host_[id]).gpudirect;
  };
  const auto pass_memory = [&](DeviceId id) {
    const std::size_t times = device(id).kind == DeviceKind::gpu ? 2 : 1;
    path.crosses.insert(path.crosses.end(), times, memory_.at(numa_[id]));
  };
  path.kind = PathKind::net;
  bool exists = true;
  if (reaches_gpu(from)) {
    exists = climb(from, path.from_nic, path.crosses);
  } else {
    exists = climb(from, numa_[from], path.crosses);
    pass_memory(from);
    exists = exists && climb(numa_[from], path.from_nic, path.crosses);
  }
  exists = exists && route(path.from_nic, path.to_nic, LinkKind::network, path.crosses);
  if (reaches_gpu(to)) {
    exists = exists && climb(path.to_nic, to, path.crosses);
  } else {
    exists = exists && climb(path.to_nic, numa_[to], path.crosses);
    pass_memory(to);
    exists = exists && climb(numa_[to], to, path.crosses);
  }
  return exists ? path : Path{};
}

/// Sets bandwidth, bottleneck and latency from the resources that the path crosses.
void Topology::finish(Path& path) const {
  for (const ResourceId id : path.crosses) {
    const Resource& crossed = resource(id);
    path.latency_us += crossed.latency_us;
    if (crossed.bandwidth_gbps == 0) continue;
    const auto times = std::count(path.crosses.begin(), path.crosses.end(), id);
    const double gbps = crossed.bandwidth_gbps / static_cast<double>(times);
    if (path.bandwidth_gbps == 0 || gbps < path.bandwidth_gbps) {
      path.bandwidth_gbps = gbps;
      path.bottleneck = id;
    }
  }
}

Path Topology::path(DeviceId from, DeviceId to) const {
  Path path;
  if (from == to) {
    path.kind = PathKind::self;
    return path;
  }
  const auto is_end = [&](DeviceId id) {
    return device(id).kind == DeviceKind::gpu || device(id).kind == DeviceKind::numa;
  };
  if (!is_end(from) || !is_end(to)) return path;
  if (joined_by_nvlink(from, to) && through_nvlink(from, to, path.crosses))
    path.kind = PathKind::nvlink;
  else
    path = host_[from] == host_[to] ? inside_host(from, to) : between_hosts(from, to);
  finish(path);
  return path;
}

}  // namespace strait
