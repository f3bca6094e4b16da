#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "topology/print.hpp"
#include "topology/shape.hpp"

namespace strait {
namespace {

class Table {
 public:
  explicit Table(const Topology& topology) : topology_(topology) {
    const std::vector<DeviceId> hosts = topology_.all(DeviceKind::host);
    all_ranks_ = topology_.ranks();
    first_ = hosts.empty() ? no_device : all_ranks_.empty() ? hosts.front() : topology_.host_of(all_ranks_.front());
    for (const DeviceId rank : all_ranks_)
      if (topology_.host_of(rank) == first_) ranks_.push_back(rank);
    for (const DeviceId nic : topology_.all(DeviceKind::nic))
      if (topology_.host_of(nic) == first_) nics_.push_back(nic);
    hosts_ = hosts.size();
  }

  std::string print() {
    const bool has_gpus = !topology_.all(DeviceKind::gpu).empty();
    out_ << topology_.name() << "\n";
    out_ << hosts_ << (hosts_ == 1 ? " host, " : " hosts, ") << all_ranks_.size() << (has_gpus ? " GPU" : " NUMA node")
         << (all_ranks_.size() == 1 ? "" : "s") << (has_gpus ? "" : ", no GPU") << "\n\n";
    matrix();
    legend();
    if (has_gpus) host_links();
    network();
    islands();
    for (const std::string& note : topology_.data().notes) out_ << "note: " << note << "\n";
    return out_.str();
  }

 private:
  std::string short_name(DeviceId id) const {
    const std::string& name = topology_.device(id).name;
    return name.substr(name.find('/') + 1);
  }

  std::string cell(DeviceId from, DeviceId to) {
    const Path path = topology_.path(from, to);
    std::string symbol(name(path.kind));
    if (path.kind == PathKind::self) return "X";
    if (path.kind == PathKind::none) return "-";
    if (path.kind == PathKind::nvlink)
      symbol = "NV" + std::to_string(topology_.data().links[path.crosses.front() / 2].count);
    if (path.kind == PathKind::pcie) symbol = "P2P";
    if (path.kind == PathKind::socket) symbol = "SYS";
    if (path.kind == PathKind::host) {
      reasons_.insert(path.reason);
      symbol = name(path.reason);
    }
    symbols_.insert(path.kind);
    return path.bandwidth_gbps > 0 ? symbol + " " + rate_text(path.bandwidth_gbps) : symbol;
  }

  /// Returns where the branches of a GPU and a NIC meet: "switch", "node" or "far"; with * if this is the GPU's NIC.
  std::string nearness(DeviceId rank, DeviceId nic) const {
    std::set<DeviceId> above;
    for (DeviceId id = rank; id != no_device; id = topology_.device(id).parent) above.insert(id);
    DeviceId meets = nic;
    while (!above.contains(meets)) meets = topology_.device(meets).parent;
    const DeviceKind kind = topology_.device(meets).kind;
    const char* near = kind == DeviceKind::host ? "far" : kind == DeviceKind::numa ? "node" : "switch";
    return std::string(near) + (topology_.nic_of(rank) == nic ? "*" : "");
  }

  void matrix() {
    std::vector<std::vector<std::string>> rows{{""}};
    for (const DeviceId to : ranks_) rows[0].push_back(short_name(to));
    for (const DeviceId nic : nics_) rows[0].push_back(short_name(nic));
    rows[0].emplace_back("NUMA");
    for (const DeviceId from : ranks_) {
      std::vector<std::string> row{short_name(from)};
      for (const DeviceId to : ranks_) row.push_back(cell(from, to));
      for (const DeviceId nic : nics_) row.push_back(nearness(from, nic));
      row.push_back(short_name(topology_.numa_of(from)));
      rows.push_back(std::move(row));
    }
    std::vector<std::size_t> widths(rows[0].size());
    for (const auto& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
      out_ << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
    }
    out_ << "\n";
  }

  void legend() {
    out_ << "Rates in GB/s one way, of a pair that is alone on the machine.\n";
    if (symbols_.contains(PathKind::nvlink)) out_ << "  NVn  over n NVLinks, or a switch that n lead to\n";
    if (symbols_.contains(PathKind::pcie)) out_ << "  P2P  peer to peer over PCIe\n";
    if (symbols_.contains(PathKind::socket)) out_ << "  SYS  between the memories of two sockets\n";
    for (const P2pStatus reason : reasons_) out_ << "  " << name(reason) << "  " << explain(reason) << "\n";
    if (!nics_.empty() && !ranks_.empty())
      out_ << "  NICs: behind the same switch or port, at the same NUMA node, or far; * is used\n";
    out_ << "\n";
  }

  void host_links() {
    out_ << "To and from host memory, alone; and if all GPUs of the host do it at once, each:\n";
    std::vector<Flow> up, down;
    for (const DeviceId gpu : ranks_) {
      up.push_back({gpu, topology_.numa_of(gpu), 1e9});
      down.push_back({topology_.numa_of(gpu), gpu, 1e9});
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Path to_host = topology_.path(up[i].from, up[i].to), from_host = topology_.path(down[i].from, down[i].to);
      out_ << "  " << short_name(ranks_[i]) << "  up " << rate_text(to_host.bandwidth_gbps) << ", down "
           << rate_text(from_host.bandwidth_gbps) << "; together up " << together(to_host, up) << ", down "
           << together(from_host, down) << "\n";
    }
    out_ << "\n";
  }

  /// Returns the rate of this path while all flows run: its share of the busiest resource that it crosses.
  std::string together(const Path& path, const std::vector<Flow>& flows) const {
    const auto loads = loads_of(topology_, flows);
    if (!loads) return "-";
    for (const Load& load : *loads)
      if (std::find(path.crosses.begin(), path.crosses.end(), load.resource) != path.crosses.end())
        return rate_text(1e6 / load.time_us) + " (" + topology_.resource(load.resource).name + ")";
    return "no limit known";
  }

  void network() {
    const auto other = std::find_if(all_ranks_.begin(), all_ranks_.end(),
                                    [&](DeviceId rank) { return topology_.host_of(rank) != first_; });
    if (other == all_ranks_.end()) return;
    const DeviceId farthest = all_ranks_.back();
    for (const DeviceId to : std::set{*other, farthest}) {
      const Path path = topology_.path(ranks_.front(), to);
      out_ << topology_.device(ranks_.front()).name << " to " << topology_.device(to).name << ": " << name(path.kind);
      if (path.bandwidth_gbps > 0)
        out_ << " " << rate_text(path.bandwidth_gbps) << " GB/s, " << rate_text(path.latency_us)
             << " us; narrowest: " << topology_.resource(path.bottleneck).name;
      out_ << "\n";
    }
    out_ << "\n";
  }

  void islands() {
    for (const Level& level : levels_of(topology_, all_ranks_)) {
      const std::uint32_t count = *std::max_element(level.islands.begin(), level.islands.end()) + 1;
      out_ << level.name << " islands: " << count << "  ";
      constexpr std::uint32_t most_shown = 8;
      for (std::uint32_t island = 0; island < std::min(count, most_shown); ++island) {
        std::string members;
        for (std::size_t rank = 0; rank < level.islands.size(); ++rank)
          if (level.islands[rank] == island) members += (members.empty() ? "" : " ") + std::to_string(rank);
        constexpr std::size_t widest = 60;
        if (members.size() > widest) members = members.substr(0, members.find(' ', widest - 10)) + " ...";
        out_ << "{" << members << "} ";
      }
      out_ << (count > most_shown ? "...\n" : "\n");
    }
    out_ << "\n";
  }

  const Topology& topology_;
  DeviceId first_ = no_device;  ///< the host that is shown in full
  std::size_t hosts_ = 0;
  std::vector<DeviceId> all_ranks_, ranks_, nics_;  ///< of all hosts; the last two are those of the host that is shown
  std::set<P2pStatus> reasons_;
  std::set<PathKind> symbols_;
  std::ostringstream out_;
};

}  // namespace

std::string rate_text(double gbps) {
  char text[32];
  std::snprintf(text, sizeof text, gbps >= 100 ? "%.0f" : "%.3g", gbps);
  return text;
}

std::string to_table(const Topology& topology) { return Table(topology).print(); }

}  // namespace strait
