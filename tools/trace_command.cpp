
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "exit_code.hpp"
#include "safe_print.hpp"
#include "trace/files.hpp"

namespace strait::tools {
namespace {

Status show(const std::vector<std::string>& paths, bool all_calls, bool all_runs) {
  STRAIT_ASSIGN(const trace::Recorded recorded, trace::read_files(paths, all_runs));
  for (const std::string& file : recorded.left_out) tools::print(stderr, "strait trace: left out: {}\n", file);
  tools::print(stdout, "{}", trace::report(recorded, all_calls));
  return {};
}

}  // namespace

void add_trace(CLI::App& app, int& exit_code) {
  struct Options {
    std::vector<std::string> paths;
    bool all_calls = false, all_runs = false;
  };
  CLI::App* command =
      app.add_subcommand("trace", "Show from flight recorder files which rank is behind, and in which call");
  const auto options = std::make_shared<Options>();
  command->add_option("files", options->paths, "The files, or the folder that STRAIT_FLIGHT_RECORDER named")
      ->required();
  command->add_flag("--calls", options->all_calls, "Also print every recorded call");
  command->add_flag("--all", options->all_runs, "Also show what earlier runs have left in the folder");
  command->callback([options, &exit_code] {
    exit_code = report_and_exit_code("trace", show(options->paths, options->all_calls, options->all_runs));
  });
}

}  // namespace strait::tools
