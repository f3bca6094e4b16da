#include "calls/p2p.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace strait {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::uint32_t> parse_rank(std::string_view text) {
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return rank;
}

/// What is wrong with a group; empty where nothing is, and its ranks are in `island`.
std::string problem_of(std::string_view group, const std::vector<Island>& before, Island& island) {
  for (const std::string_view part : split(group, '-')) {
    const auto rank = parse_rank(part);
    if (!rank) return "\"" + std::string(part) + "\" is no rank";
    const auto has = [&](const Island& other) { return std::find(other.begin(), other.end(), *rank) != other.end(); };
    if (has(island)) return "rank " + std::string(part) + " is twice in " + std::string(group);
    if (std::any_of(before.begin(), before.end(), has)) return "rank " + std::string(part) + " is in two groups";
    island.push_back(*rank);
  }
  if (island.size() == 1) return "rank " + std::string(group) + " is alone in its group; leave it out";
  return {};
}

}  // namespace

Result<P2pSetting> parse_p2p(const std::string& text) {
  P2pSetting setting;
  setting.text = text;
  if (text == "auto") return setting;
  std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() == 1 && text == "off") {
    setting.use = P2p::off;
    return setting;
  }
  if (parts.front() == "pcie") {
    setting.use = P2p::pcie;
    parts.erase(parts.begin());
  }
  for (const std::string_view part : parts) {
    Island island;
    if (const std::string problem = problem_of(part, setting.groups, island); !problem.empty())
      return fail(Code::invalid_argument, "STRAIT_P2P=\"" + text + "\" is not accepted: " + problem +
                                              ". Give auto, pcie, off, or groups of ranks such as 0-1,2-3");
    std::sort(island.begin(), island.end());
    setting.groups.push_back(std::move(island));
  }
  return setting;
}

Status check_ranks(const P2pSetting& setting, std::uint32_t ranks) {
  for (const Island& island : setting.groups)
    if (island.back() >= ranks)
      return fail(Code::invalid_argument, "STRAIT_P2P=\"" + setting.text + "\" names rank " +
                                              std::to_string(island.back()) + ", and the communicator has " +
                                              std::to_string(ranks) + " ranks, 0 to " + std::to_string(ranks - 1));
  return {};
}

P2pSetting part_of(const P2pSetting& setting, std::span<const std::uint32_t> members) {
  P2pSetting part = setting;
  part.groups.clear();
  for (const Island& group : setting.groups) {
    Island island;
    for (std::uint32_t rank = 0; rank < members.size(); ++rank)
      if (std::find(group.begin(), group.end(), members[rank]) != group.end()) island.push_back(rank);
    if (island.size() > 1) part.groups.push_back(std::move(island));
  }
  if (!setting.groups.empty() && part.groups.empty()) part.use = P2p::off;
  return part;
}

Reach allowed_reach(const P2pSetting& setting, std::uint32_t ranks) {
  Reach reach(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) reach[rank] = 1u << rank;
  if (setting.use == P2p::off) return reach;
  if (setting.groups.empty()) reach.assign(ranks, static_cast<std::uint32_t>((std::uint64_t{1} << ranks) - 1));
  for (const Island& group : setting.groups)
    for (const std::uint32_t a : group)
      for (const std::uint32_t b : group) reach[a] |= 1u << b;
  return reach;
}

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
