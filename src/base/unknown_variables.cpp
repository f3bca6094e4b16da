#include "base/unknown_variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"

namespace strait {
namespace {

constexpr std::string_view own_prefix = "STRAIT_";

/// Variables that only tests read (tests/fault/hunt.hpp), and that are therefore not in the table.
constexpr std::string_view variables_of_tests[] = {"STRAIT_HUNT_SECONDS", "STRAIT_HUNT_SEED"};

bool is_known(std::string_view name) {
  return std::ranges::find(environment_table, name, &Variable::name) != std::end(environment_table) ||
         std::ranges::find(variables_of_tests, name) != std::end(variables_of_tests);
}

/// Returns how many letters must be inserted, removed, replaced or exchanged with their neighbours to turn one text
/// into the other (the optimal string alignment distance).
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before(to.size() + 1), last(to.size() + 1), next(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      next[j] = std::min({last[j] + 1, next[j - 1] + 1, last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, next);
  }
  return last.back();
}

}  // namespace

std::string_view nearest_variable(std::string_view name) {
  constexpr std::size_t longest = 64;  // no known name is nearly as long
  if (!name.starts_with(own_prefix) || name.size() > longest) return "";
  name.remove_prefix(own_prefix.size());
  std::string_view nearest;
  std::size_t least = name.size() / 3 + 1;  // one wrong letter in three is still the same word
  for (const Variable& variable : environment_table) {
    const std::string_view known = variable.name.substr(own_prefix.size());
    // The unit is easily left out: STRAIT_TIMEOUT.
    constexpr std::size_t shortest_beginning = 4;
    const bool is_beginning = name.size() >= shortest_beginning && known.starts_with(name);
    const std::size_t distance = is_beginning ? 1 : edit_distance(name, known);
    if (distance >= least) continue;
    least = distance;
    nearest = variable.name;
  }
  return nearest;
}

std::vector<std::string> describe_unknown_variables(const char* const* entries) {
  std::vector<std::string> texts;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view text = *entries;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(own_prefix) || is_known(name)) continue;
    const std::string_view nearest = nearest_variable(name);
    texts.push_back(
        std::string(name) + " is no variable of Strait: it changes nothing. " +
        (nearest.empty() ? "`strait env` prints those that there are" : "Did you mean " + std::string(nearest) + "?"));
  }
  return texts;
}

void warn_of_unknown_variables() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& text : describe_unknown_variables(environ)) log_warn(-1, text);
  });
}

}  // namespace strait
