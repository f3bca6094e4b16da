#include "base/environment.hpp"

#include <charconv>
#include <optional>
#include <ostream>

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
      return "a whole number from " + std::to_string(variable.minimum) + " to " + std::to_string(variable.maximum);
    case VariableKind::bytes:
      return "a number of bytes such as 65536, 64K or 4M, from " + std::to_string(variable.minimum) + " to " +
             std::to_string(variable.maximum);
    case VariableKind::text:
      break;
  }
  return "text";
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
  std::int64_t number = 0;
  auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{}) return std::nullopt;
  std::string_view suffix(rest, static_cast<std::size_t>(value.data() + value.size() - rest));
  if (!suffix.empty()) {
    int shift = variable.kind == VariableKind::bytes ? suffix_shift(suffix) : -1;
    if (shift < 0 || number < 0 || number > (variable.maximum >> shift)) return std::nullopt;
    number <<= shift;
  }
  if (number < variable.minimum || number > variable.maximum) return std::nullopt;
  return number;
}

}  // namespace

Environment::Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

std::string Environment::raw(const char* name) const {
  const char* value = lookup_(name);
  return value ? value : "";
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
  if (variable.kind == VariableKind::choice) {
    if (!is_choice(variable.choices, value)) return refuse();
    return value;
  }
  auto number = parse_number(variable, value);
  if (!number) return refuse();
  return std::to_string(*number);
}

Result<std::string> Environment::text(VariableName name) const { return canonical(name.variable()); }

Result<std::int64_t> Environment::integer(VariableName name) const {
  const Variable& variable = name.variable();
  STRAIT_ASSIGN(std::string value, canonical(variable));
  if (!is_number(variable.kind) || value.empty())
    return fail(Code::invalid_argument, std::string(variable.name) + " is not set: give " + accepted(variable));
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
