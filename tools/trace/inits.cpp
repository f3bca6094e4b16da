#include "trace/inits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "safe_print.hpp"
#include "trace/by_age.hpp"

namespace strait::trace {
namespace {

std::string printable_text(const nlohmann::json& json) { return tools::printable(json.get<std::string>()); }

std::string seconds_until(double end_unix_us, double begin_unix_us) {
  return fmt::format("{:.1f} s", std::max(0.0, end_unix_us - begin_unix_us) * 1e-6);
}

std::string name_of(const RankInInit& init) {
  return fmt::format("rank {} ({})", init.rank < 0 ? "?" : std::to_string(init.rank), init.process);
}

bool may_wait_for_calls(const RankInInit& init) { return init.awaits_calls.value_or(true); }

std::string list(const auto& ranks) { return fmt::format("{}", fmt::join(ranks, ", ")); }

/// Returns who is missing, as the process knows in which the ranks join, or else who has no file.
std::string missing_ranks(const std::vector<RankInInit>& inits) {
  const RankInInit* informed = nullptr;
  for (const RankInInit& init : inits)
    if (!init.missing.empty() && (informed == nullptr || init.unix_us > informed->unix_us)) informed = &init;
  std::string text;
  if (informed != nullptr)
    text += fmt::format("Behind: rank {} had not joined at {} when {} was asked\n", list(informed->missing),
                        informed->root, name_of(*informed));
  std::set<int> without_file;
  const RankInInit& first = inits.front();
  for (int rank = 0; rank < first.ranks && first.known_as.empty(); ++rank) without_file.insert(rank);
  without_file.insert(first.known_as.begin(), first.known_as.end());
  for (const RankInInit& init : inits) without_file.erase(init.rank);
  // Ranks that have a communicator already may well have written a file: that one's.
  if (!without_file.empty() && std::ranges::all_of(inits, waits_for_calls))
    text += fmt::format("Behind: rank {}, which has not called {}, or wrote no file\n", list(without_file), first.call);
  else if (!without_file.empty() && std::ranges::any_of(inits, may_wait_for_calls))
    text += fmt::format("Not in it: rank {}, which has not called {}, or is done with it, or wrote no file\n",
                        list(without_file), first.call);
  else if (!without_file.empty())
    text += fmt::format(
        "No file of rank {}: it has not begun, or is done, or did not get SIGUSR1, or has no "
        "STRAIT_FLIGHT_RECORDER\n",
        list(without_file));
  return text.empty() ? "Nobody is missing: all ranks are in it\n" : text;
}

std::string report_set(const std::vector<RankInInit>& inits) {
  const RankInInit& first = inits.front();
  std::string text = fmt::format("In {}: {} of {} ranks", first.call, inits.size(),
                                 first.ranks > 0 ? std::to_string(first.ranks) : "an unknown number of");
  text += first.root.empty() ? "\n" : fmt::format(", which join at {}\n", first.root);
  std::size_t name_width = 4;
  for (const RankInInit& init : inits) name_width = std::max(name_width, name_of(init).size());
  text += fmt::format("\n{:<{}}  {:<9}  waits for\n", "rank", name_width, "in it for");
  for (const RankInInit& init : inits)
    text += fmt::format("{:<{}}  {:<9}  {} (for {})\n", name_of(init), name_width,
                        seconds_until(init.unix_us, init.began_unix_us), init.awaits.empty() ? "nobody" : init.awaits,
                        seconds_until(init.unix_us, init.awaits_since_unix_us));
  return text + "\n" + missing_ranks(inits);
}

}  // namespace

bool is_of_init(const nlohmann::json& json) {
  return json.is_object() && json.contains("format") && json["format"] == "strait flight recorder init 1";
}

RankInInit read_init(const nlohmann::json& json) {
  constexpr int most_ranks_listed = 1'000'000;  // a damaged file must not ask for all memory
  RankInInit init;
  init.call = printable_text(json.at("call"));
  init.rank = json.at("rank");
  init.ranks = std::min(json.at("ranks").get<int>(), most_ranks_listed);
  init.known_as = json.value("known_as", std::vector<int>());  // earlier versions wrote none
  init.process = fmt::format("host {}, pid {}", printable_text(json.at("host")), json.at("pid").get<std::int64_t>());
  init.root = printable_text(json.at("root"));
  init.awaits = printable_text(json.at("awaits"));
  init.began_unix_us = json.at("began_unix_us");
  init.awaits_since_unix_us = json.at("awaits_since_unix_us");
  init.unix_us = json.at("unix_us");
  init.missing = json.at("missing").get<std::vector<int>>();
  if (const auto of = json.find("of"); of != json.end() && !of->is_null()) {
    init.communicator = printable_text(of->at("communicator"));
    init.rank_there = of->at("rank");
  }
  if (const auto awaits_calls = json.find("awaits_calls"); awaits_calls != json.end())
    init.awaits_calls = awaits_calls->get<bool>();
  else if (!init.communicator.empty() && init.root.empty())
    init.awaits_calls.reset();
  return init;
}

std::string report_inits(const std::vector<RankInInit>& inits, bool all) {
  std::map<std::tuple<std::string, std::string, std::string, int>, std::vector<RankInInit>> sets;
  for (const RankInInit& init : inits) sets[{init.call, init.communicator, init.root, init.ranks}].push_back(init);
  std::string text;
  for (auto& [key, set] : sets) {
    std::size_t left_out = all ? 0 : set.size();
    auto times = by_age(std::move(set), &RankInInit::began_unix_us);
    if (!all) times.erase(times.begin(), times.end() - 1);
    for (auto& ranks : times) {
      std::ranges::sort(ranks, {}, &RankInInit::rank);
      text += (text.empty() ? "" : "\n") + report_set(ranks);
      left_out -= all ? 0 : ranks.size();
    }
    if (left_out > 0)
      text += fmt::format("Left out: {} of ranks that were in it before the last of these began; --all shows them\n",
                          left_out == 1 ? "1 file" : fmt::format("{} files", left_out));
  }
  return text;
}

}  // namespace strait::trace
