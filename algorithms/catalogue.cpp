#include <algorithm>
#include <array>

#include "algorithms.hpp"
#include "plan/request.hpp"

namespace strait {

std::span<const Algorithm> catalogue() {
  static const std::array entries{
      algorithms::one_hop,      algorithms::two_hop,          algorithms::direct,  algorithms::peer_one_hop,
      algorithms::peer_two_hop, algorithms::peer_push,        algorithms::staged,  algorithms::ring,
      algorithms::tree,         algorithms::halving_doubling, algorithms::bruck,   algorithms::hierarchical,
      algorithms::multi_leader, algorithms::point_to_point,   algorithms::barrier,
  };
  return entries;
}

const Algorithm* find_algorithm(std::string_view name) {
  const auto entries = catalogue();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Algorithm& a) { return a.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace strait
