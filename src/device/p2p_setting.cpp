#include "device/p2p_setting.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

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

/// Puts the ranks of a group into `island`. Returns what is wrong with it, or an empty string.
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

}  // namespace strait
