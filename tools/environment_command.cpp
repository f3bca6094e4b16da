#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/environment.hpp"
#include "base/unknown_variables.hpp"
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
    for (const std::string& text : describe_unknown_variables(environ)) {
      std::cerr << "strait env: " << text << "\n";
      exit_code = failed;
    }
  });
}

}  // namespace strait::tools
