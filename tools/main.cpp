#include <CLI/CLI.hpp>

#include "command.hpp"

namespace {
constexpr int usage_error = 2;  // told apart from 1: a run that failed or was wrong
}

int main(int argc, char** argv) {
  CLI::App app("Strait: collective communication for narrow links", "strait");
  app.require_subcommand(1);
  int exit_code = 0;
  strait::tools::add_doctor(app, exit_code);
  strait::tools::add_explain(app, exit_code);
  strait::tools::add_sim(app, exit_code);
  strait::tools::add_perf(app, exit_code);
  strait::tools::add_plan(app, exit_code);
  strait::tools::add_run(app, exit_code);
  strait::tools::add_trace(app, exit_code);
  strait::tools::add_topo(app, exit_code);
  strait::tools::add_environment(app, exit_code);
  strait::tools::add_version(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage_error;
  }
  return exit_code;
}
