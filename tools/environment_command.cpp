#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string_view>

#include "base/environment.hpp"
#include "command.hpp"

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

}  // namespace

void add_environment(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("env", "Print the environment variables, their values and meaning");
  const auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "The documentation's table, without values");
  command->callback([markdown, &exit_code] {
    if (*markdown) {
      print_markdown(std::cout);
      return;
    }
    print_text(std::cout);
    if (auto status = Environment().validate(); !status) {
      std::cerr << "strait env: " << status.error().message << "\n";
      exit_code = 1;
    }
  });
}

}  // namespace strait::tools
