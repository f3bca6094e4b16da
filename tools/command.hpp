#pragma once

#include <optional>
#include <span>

namespace CLI {
class App;
}

/// The subcommands of `strait`. Each declares itself; `exit_code` is set when its callback has run.
namespace strait::tools {

void add_doctor(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_perf(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
/// `behind_dashes`: what the command line has after the first `--`, if it has one.
void add_run(CLI::App& app, std::optional<std::span<char* const>> behind_dashes, int& exit_code);
void add_sim(CLI::App& app, int& exit_code);
void add_trace(CLI::App& app, int& exit_code);
void add_topo(CLI::App& app, int& exit_code);
void add_version(CLI::App& app);  ///< and the flag --version
void add_environment(CLI::App& app, int& exit_code);

}  // namespace strait::tools
