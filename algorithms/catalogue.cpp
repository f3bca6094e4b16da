#include <algorithm>
#include <array>

#include "plan/request.hpp"

namespace strait {

namespace algorithms {
#define STRAIT_ALGORITHM(name) extern const Algorithm name;
#include "catalogue.inl"
#undef STRAIT_ALGORITHM
}  // namespace algorithms

std::span<const Algorithm> catalogue() {
  static const std::array entries{
#define STRAIT_ALGORITHM(name) algorithms::name,
#include "catalogue.inl"
#undef STRAIT_ALGORITHM
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
