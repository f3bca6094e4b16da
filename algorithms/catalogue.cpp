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

std::string algorithm_names() {
  std::string names;
  for (const Algorithm& algorithm : catalogue()) names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  return names;
}

Asks asks_for(const Algorithm& algorithm, const PlanRequest& request) {
  PlanRequest more = request;
  if (algorithm.supports(more)) return Asks::nothing;
  more.peer_memory = true;
  if (algorithm.supports(more)) return Asks::peer_memory;
  for (std::uint32_t size = 2; size < request.ranks; ++size) {
    more.shape.levels.assign(1, {});
    for (std::uint32_t rank = 0; rank < request.ranks; ++rank) more.shape.levels.front().push_back(rank / size);
    if (algorithm.supports(more)) return Asks::islands;
  }
  return Asks::something_else;
}

}  // namespace strait
