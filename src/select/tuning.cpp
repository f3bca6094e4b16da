#include "select/tuning.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/enum_names.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "plan/request.hpp"
// Header-only, so that the library needs no other package at run time.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace strait {
namespace {

constexpr std::size_t most_file_bytes = 1 << 20;
constexpr std::array<std::string_view, 11> known_keys{"collective", "bytes",     "min_bytes",  "max_bytes",
                                                      "ranks",      "min_ranks", "max_ranks",  "type",
                                                      "algorithm",  "lanes",     "slice_bytes"};

/// Whether the algorithm can do the collective on some machine.
bool can_do(const Algorithm& algorithm, Collective collective) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = 4;
  return asks_for(algorithm, request) != Asks::something_else;
}

/// Reads one table. Keeps the first problem that is found, with its line.
class Entry {
 public:
  Entry(const toml::table& table, const std::string& file) : table_(table), file_(file) {}

  Result<Override> read() {
    Override entry;
    entry.place = at(table_);
    for (const auto& [key, value] : table_)
      if (std::find(known_keys.begin(), known_keys.end(), key.str()) == known_keys.end())
        refuse(value, "unknown key '" + std::string(key.str()) + "'");
    std::string text;
    if (!take("collective", text))
      refuse(table_, "an override needs a collective: one of " + collectives());
    else if (const auto found = from_name<Collective>(text, collective_count))
      entry.collective = *found;
    else
      refuse(*table_.get("collective"), "'" + text + "' is no collective: give one of " + collectives());
    if (take("type", text)) {
      entry.type = from_name<DataType>(text, data_type_count);
      if (!entry.type)
        refuse(*table_.get("type"), "'" + text + "' is no type: give one of " + all_names<DataType>(data_type_count));
    }
    range("bytes", entry.min_bytes, entry.max_bytes);
    range("ranks", entry.min_ranks, entry.max_ranks);
    number("slice_bytes", entry.slice_bytes);
    number("lanes", entry.lanes);
    take("algorithm", entry.algorithm);
    check(entry);
    if (!problem_.empty()) return fail(Code::invalid_usage, problem_);
    return entry;
  }

 private:
  static std::string collectives() { return all_names<Collective>(collective_count); }
  std::string at(const toml::node& node) const { return file_ + ":" + std::to_string(node.source().begin.line); }
  void refuse(const toml::node& node, const std::string& problem) {
    if (problem_.empty()) problem_ = at(node) + ": " + problem;
  }

  bool take(const char* key, std::string& text) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return false;
    if (const auto value = node->value_exact<std::string>()) {
      text = *value;
      return true;
    }
    refuse(*node, std::string(key) + " must be a text in quotes");
    return false;
  }

  template <class T>
  void number(const std::string& key, T& number) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    std::optional<std::int64_t> value = node->value_exact<std::int64_t>();
    if (const auto text = node->value_exact<std::string>()) value = parse_bytes(*text);
    if (value && *value >= 0 && static_cast<std::uint64_t>(*value) <= std::numeric_limits<T>::max())
      number = static_cast<T>(*value);
    else
      refuse(*node, key + " must be a number such as 65536 or \"64K\"");
  }

  /// Reads a range given by a key such as "bytes", or by "min_bytes" and "max_bytes".
  template <class T>
  void range(const std::string& key, T& least, T& most) {
    if (table_.contains(key)) {
      number(key, least);
      most = least;
    }
    number("min_" + key, least);
    number("max_" + key, most);
    if (least > most)
      refuse(table_, "no " + key + " are at least " + std::to_string(least) + " and at most " + std::to_string(most));
  }

  void check(const Override& entry) {
    constexpr std::uint32_t most_lanes = 64;
    if (entry.slice_bytes % 16 != 0) refuse(*table_.get("slice_bytes"), "slice_bytes must be a multiple of 16");
    if (entry.lanes > most_lanes)
      refuse(*table_.get("lanes"), "lanes must be no more than " + std::to_string(most_lanes));
    if (entry.algorithm.empty() && entry.slice_bytes == 0 && entry.lanes == 0)
      refuse(table_, "an override needs an algorithm, slice_bytes or lanes");
    if (entry.algorithm.empty() || !problem_.empty()) return;
    std::string fitting;
    for (const Algorithm& algorithm : catalogue())
      if (can_do(algorithm, entry.collective)) fitting += (fitting.empty() ? "" : ", ") + std::string(algorithm.name);
    const Algorithm* algorithm = find_algorithm(entry.algorithm);
    if (algorithm == nullptr || !can_do(*algorithm, entry.collective))
      refuse(*table_.get("algorithm"), "algorithm '" + entry.algorithm + "' " +
                                           (algorithm == nullptr ? "is unknown" : "cannot do it") + "; for " +
                                           std::string(name(entry.collective)) + " there are " + fitting);
  }

  const toml::table& table_;
  const std::string& file_;
  std::string problem_;
};

std::string text_of(const Override& entry) {
  std::ostringstream text;
  text << name(entry.collective) << ' ' << entry.min_bytes << '-' << entry.max_bytes << ' ' << entry.min_ranks << '-'
       << entry.max_ranks << ' ' << (entry.type ? name(*entry.type) : "*") << ' ' << entry.algorithm << ' '
       << entry.slice_bytes << ' ' << entry.lanes << '\n';
  return text.str();
}

Result<std::string> content_of(const std::string& path) {
  std::error_code error;
  const auto cannot = [&](const std::string& problem) {
    return fail(Code::invalid_usage, "cannot read the tuning file " + path + " (STRAIT_TUNING_FILE): " + problem);
  };
  if (!std::filesystem::is_regular_file(path, error)) return cannot(error ? error.message() : "it is no plain file");
  if (std::filesystem::file_size(path, error) > most_file_bytes) return cannot("it is far too long");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return cannot("reading failed. Check its permissions");
  return text;
}

}  // namespace

bool Override::fits(Collective of, std::size_t bytes, DataType element, std::uint32_t ranks) const {
  return collective == of && bytes >= min_bytes && bytes <= max_bytes && ranks >= min_ranks && ranks <= max_ranks &&
         (!type || *type == element);
}

const Override* Tuning::find(Collective collective, std::size_t bytes, DataType type, std::uint32_t ranks) const {
  const auto found = std::find_if(overrides.begin(), overrides.end(),
                                  [&](const Override& entry) { return entry.fits(collective, bytes, type, ranks); });
  return found == overrides.end() ? nullptr : &*found;
}

std::string Tuning::summary() const {
  if (overrides.empty()) return "no overrides";
  std::string all;
  for (const Override& entry : overrides) all += text_of(entry);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%zu overrides, hash %016llx", overrides.size(),
                static_cast<unsigned long long>(hash_text(all)));
  return text.data();
}

Tuning parse_tuning(std::string_view text, const std::string& name) {
  Tuning tuning;
  const auto problem = [&](std::uint32_t line, const std::string& what) {
    tuning.problems.push_back(name + ":" + std::to_string(line) + ": " + what);
  };
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    problem(parsed.error().source().begin.line, "not TOML: " + std::string(parsed.error().description()));
    return tuning;
  }
  for (const auto& [key, value] : parsed.table()) {
    const toml::array* entries = value.as_array();
    if (key.str() != "override" || entries == nullptr) {
      problem(value.source().begin.line, "'" + std::string(key.str()) + "' is unknown; the file holds [[override]]s");
      continue;
    }
    for (const toml::node& node : *entries) {
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        problem(node.source().begin.line, "an override is written under [[override]]");
        continue;
      }
      if (auto entry = Entry(*table, name).read())
        tuning.overrides.push_back(std::move(*entry));
      else
        tuning.problems.push_back(entry.error().message);
    }
  }
  return tuning;
}

Result<Tuning> load_tuning(const Environment& environment) {
  STRAIT_ASSIGN(const std::string path, environment.text("STRAIT_TUNING_FILE"));
  STRAIT_ASSIGN(const bool strict, environment.flag("STRAIT_TUNING_STRICT"));
  if (path.empty()) return Tuning{};
  Tuning tuning;
  if (const auto text = content_of(path))
    tuning = parse_tuning(*text, path);
  else
    tuning.problems.push_back(text.error().message);
  for (const std::string& problem : tuning.problems) {
    if (strict) return fail(Code::invalid_usage, problem + " (STRAIT_TUNING_STRICT=1)");
    log_warn(-1, problem + ". This is left out; STRAIT_TUNING_STRICT=1 makes it an error");
  }
  return tuning;
}

}  // namespace strait
