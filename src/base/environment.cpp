#include "base/environment.hpp"

#include <charconv>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>

namespace strait {
namespace {

bool is_number(VariableKind kind) { return kind == VariableKind::integer || kind == VariableKind::bytes; }

std::string joined(std::string_view choices, std::string_view separator) {
  std::string text;
  for (char c : choices)
    if (c == '|')
      text += separator;
    else
      text += c;
  return text;
}

std::string accepted(const Variable& variable) {
  switch (variable.kind) {
    case VariableKind::choice:
      return "one of " + joined(variable.choices, ", ");
    case VariableKind::integer:
      return "a whole number from " + std::to_string(variable.minimum) + " to " + std::to_string(variable.maximum) +
             (variable.choices.empty() ? "" : ", or " + joined(variable.choices, ", "));
    case VariableKind::bytes:
      return "a number of bytes such as 65536, 64K or 4M, from " + std::to_string(variable.minimum) + " to " +
             std::to_string(variable.maximum);
    case VariableKind::text:
      break;
  }
  return "text";
}

/// Choices are accepted in upper and lower case, because NCCL's users are used to NCCL_DEBUG=INFO.
std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool is_choice(std::string_view choices, std::string_view value) {
  while (true) {
    auto bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

int suffix_shift(std::string_view suffix) {
  if (suffix == "K" || suffix == "k") return 10;
  if (suffix == "M" || suffix == "m") return 20;
  if (suffix == "G" || suffix == "g") return 30;
  return -1;
}

std::optional<std::int64_t> parse_number(const Variable& variable, std::string_view value) {
  const bool has_suffix = !value.empty() && suffix_shift(value.substr(value.size() - 1)) >= 0;
  if (has_suffix && variable.kind != VariableKind::bytes) return std::nullopt;
  const auto number = parse_bytes(value);
  if (!number || *number < variable.minimum || *number > variable.maximum) return std::nullopt;
  return number;
}

/// Values for variables that the environment does not set. Texts are never freed or changed, because other threads may
/// be reading them.
struct Defaults {
  std::mutex mutex;
  std::set<std::string> texts;
  std::map<std::string, const char*, std::less<>> values;
};

Defaults& process_defaults() {
  static auto* const defaults = new Defaults;  // never destroyed: threads may read it while the process ends
  return *defaults;
}

Result<const Variable*> find_variable(std::string_view name) {
  for (const Variable& variable : environment_table)
    if (variable.name == name) return &variable;
  return fail(Code::invalid_argument, std::string(name) + " is no variable of Strait. `strait env` prints them");
}

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view suffix(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (suffix.empty()) return number;
  const int shift = suffix_shift(suffix);
  if (shift < 0 || number < 0 || number > (std::numeric_limits<std::int64_t>::max() >> shift)) return std::nullopt;
  return number << shift;
}

Environment::Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

std::string Environment::raw(const char* name) const {
  const char* value = lookup_(name);
  return value ? value : "";
}

const char* Environment::process_variable(const char* name) {
  if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  Defaults& defaults = process_defaults();
  const std::scoped_lock lock(defaults.mutex);
  const auto found = defaults.values.find(name);
  return found == defaults.values.end() ? nullptr : found->second;
}

Status Environment::set_default(std::string_view name, const std::string& value) {
  const Environment only_this([&](const char*) { return value.c_str(); });
  STRAIT_TRY(only_this.value(name));
  Defaults& defaults = process_defaults();
  const std::scoped_lock lock(defaults.mutex);
  defaults.values[std::string(name)] = defaults.texts.insert(value).first->c_str();
  return {};
}

Result<std::string> Environment::value(std::string_view name) const {
  STRAIT_ASSIGN(const Variable* variable, find_variable(name));
  return canonical(*variable);
}

bool Environment::is_set(VariableName name) const { return !raw(name.variable().name.data()).empty(); }

Result<std::string> Environment::canonical(const Variable& variable) const {
  std::string value = raw(variable.name.data());
  if (value.empty()) value = variable.default_value;
  if (value.empty() || variable.kind == VariableKind::text) return value;
  auto refuse = [&] {
    return fail(Code::invalid_argument,
                std::string(variable.name) + "=\"" + value + "\" is not accepted: give " + accepted(variable));
  };
  const std::string choice = lower(value);
  if (!variable.choices.empty() && is_choice(variable.choices, choice)) return choice;
  if (variable.kind == VariableKind::choice) return refuse();
  auto number = parse_number(variable, value);
  if (!number) return refuse();
  return std::to_string(*number);
}

Result<std::string> Environment::text(VariableName name) const { return canonical(name.variable()); }

Result<bool> Environment::flag(VariableName name) const {
  return text(name).map([](const std::string& value) { return value == "1"; });
}

Result<std::int64_t> Environment::integer(VariableName name) const {
  const Variable& variable = name.variable();
  STRAIT_ASSIGN(std::string value, canonical(variable));
  if (!is_number(variable.kind) || value.empty())
    return fail(Code::invalid_argument, std::string(variable.name) + " is not set: give " + accepted(variable));
  if (is_choice(variable.choices, value))
    return fail(Code::invalid_argument, std::string(variable.name) + " is " + value + ", no number");
  return std::stoll(value);
}

Result<std::vector<Setting>> Environment::shared_settings() const {
  std::vector<Setting> settings;
  for (const Variable& variable : environment_table) {
    if (!variable.equal_on_all_ranks) continue;
    STRAIT_ASSIGN(std::string value, canonical(variable));
    settings.push_back({std::string(variable.name), std::move(value)});
  }
  return settings;
}

Status Environment::validate() const {
  for (const Variable& variable : environment_table) STRAIT_TRY(canonical(variable));
  return {};
}

void print_markdown(std::ostream& out, std::span<const Variable> table) {
  out << "| Variable | Default | Accepts | Equal on all ranks | Meaning |\n|---|---|---|---|---|\n";
  for (const Variable& variable : table) {
    std::string default_value =
        variable.default_value.empty() ? "unset" : "`" + std::string(variable.default_value) + "`";
    out << "| `" << variable.name << "` | " << default_value << " | " << accepted(variable) << " | "
        << (variable.equal_on_all_ranks ? "yes" : "no") << " | " << variable.meaning << " |\n";
  }
}

}  // namespace strait
