#include "launches/islands.hpp"

#include <algorithm>

namespace strait {

bool take_away(Reach& reach, std::span<const std::uint32_t> missing) {
  const Reach before = reach;
  for (std::uint32_t a = 0; a < reach.size(); ++a)
    for (std::uint32_t b = 0; b < reach.size(); ++b)
      if (a != b && (missing[a] >> b & 1) != 0) {
        reach[a] &= ~(1u << b);
        reach[b] &= ~(1u << a);
      }
  return reach != before;
}

std::vector<Island> islands_of(const Reach& reach) {
  std::vector<Island> islands;
  std::uint32_t placed = 0;
  for (std::uint32_t founder = 0; founder < reach.size(); ++founder) {
    if ((placed >> founder & 1) != 0) continue;
    Island island;
    for (std::uint32_t rank = founder; rank < reach.size(); ++rank) {
      const auto reaches = [&](std::uint32_t member) {
        return (reach[rank] >> member & reach[member] >> rank & 1) != 0;
      };
      if ((placed >> rank & 1) == 0 && std::all_of(island.begin(), island.end(), reaches)) island.push_back(rank);
    }
    for (const std::uint32_t rank : island) placed |= 1u << rank;
    islands.push_back(std::move(island));
  }
  return islands;
}

Result<std::vector<Island>> find_islands(Reach reach, std::string& why,
                                         const std::function<Result<Missing>(std::span<const Island>)>& attempt) {
  for (;;) {
    std::vector<Island> islands = islands_of(reach);
    if (islands.size() == reach.size() && reach.size() > 1) return fail(Code::unsupported, why);
    STRAIT_ASSIGN(const Missing missing, attempt(islands));
    if (missing.works) return islands;
    why = missing.works.error().message;
    if (!take_away(reach, missing.ranks)) return fail(Code::unsupported, why);
  }
}

bool are_alike(std::span<const Island> islands) {
  return std::all_of(islands.begin(), islands.end(),
                     [&](const Island& island) { return island.size() == islands.front().size(); });
}

IslandPlace place_of(std::span<const Island> islands, std::uint32_t rank) {
  for (std::uint32_t i = 0; i < islands.size(); ++i) {
    const auto found = std::find(islands[i].begin(), islands[i].end(), rank);
    if (found != islands[i].end()) return {i, static_cast<std::uint32_t>(found - islands[i].begin())};
  }
  return {};
}

std::string describe(std::span<const Island> islands) {
  std::string text;
  for (const Island& island : islands) {
    text += text.empty() ? "" : ", ";
    for (const std::uint32_t rank : island) text += (rank == island.front() ? "" : "-") + std::to_string(rank);
  }
  return text;
}

}  // namespace strait
