#include <algorithm>
#include <array>

#include "algorithms.hpp"
#include "plan/request.hpp"

namespace strait {

std::span<const Algorithm> catalogue() {
  static const std::array entries{
      algorithms::one_hop,
      algorithms::two_hop,
      algorithms::direct,
  };
  return entries;
}

const Algorithm* find_algorithm(std::string_view name) {
  const auto entries = catalogue();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Algorithm& a) { return a.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace strait
