#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

/// Options of the command whose words have a parser.
namespace strait::tools {

/// `parse`: a Result of a string_view. Its message is what the user reads, behind the name of the option. Of several
/// values, where the target takes one, one alone is accepted; of none, the target's own default is taken.
template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& names, T& target, Parse parse, const std::string& meaning) {
  const auto name = std::make_shared<std::string>();
  CLI::Option* option = app.add_option(
      names,
      [&target, parse, name](const CLI::results_t& words) {
        auto parsed = parse(words.front());
        if (!parsed) throw CLI::ValidationError(*name, parsed.error().message);
        using Parsed = std::remove_reference_t<decltype(*parsed)>;
        if constexpr (std::is_same_v<T, Parsed>) {
          target = std::move(*parsed);
        } else if constexpr (std::is_same_v<std::optional<T>, Parsed>) {
          target = parsed->value_or(T{});
        } else {
          if (parsed->size() != 1) throw CLI::ValidationError(*name, "'" + words.front() + "': one at a time");
          target = parsed->front();
        }
        return true;
      },
      meaning);
  option->type_name("VALUE");  // what is missing, where the option comes without one
  *name = option->get_name();
  return option;
}

}  // namespace strait::tools
