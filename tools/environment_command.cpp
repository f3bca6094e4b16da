#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "command.hpp"
#include "exit_code.hpp"

namespace strait::tools {
namespace {

void print_text(std::ostream& out) {
  const Environment environment;
  for (const Variable& variable : environment_table) {
    const std::string value = environment.raw(variable.name.data());
    const bool secret = variable.name == "STRAIT_KEY";
    out << variable.name << "=" << (value.empty() ? std::string(variable.default_value) : secret ? "(set)" : value);
    if (value.empty()) out << (variable.default_value.empty() ? "(unset)" : " (default)");
    out << "\n    " << variable.meaning << "\n";
  }
}

/// Names that look like Strait's and are not, such as a misspelt one: they change nothing.
std::vector<std::string> unknown_names() {
  std::vector<std::string> names;
  for (const char* const* entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_known = std::any_of(std::begin(environment_table), std::end(environment_table),
                                      [&](const Variable& variable) { return variable.name == name; });
    if (name.starts_with("STRAIT_") && !is_known) names.emplace_back(name);
  }
  return names;
}

}  // namespace

void add_environment(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("env", "Print the environment variables, their values and their meaning");
  const auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "Print the table of the documentation, without values");
  command->callback([markdown, &exit_code] {
    if (*markdown) {
      print_markdown(std::cout);
      return;
    }
    print_text(std::cout);
    if (auto status = Environment().validate(); !status) {
      std::cerr << "strait env: " << status.error().message << "\n";
      exit_code = failed;
    }
    for (const std::string& name : unknown_names()) {
      std::cerr << "strait env: " << name << " is no variable of Strait: it changes nothing\n";
      exit_code = failed;
    }
  });
}

}  // namespace strait::tools
