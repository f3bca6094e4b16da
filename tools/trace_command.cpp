
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
    const auto recorded = trace::read_files(options->paths, options->all_runs);
    if (!recorded) {
      tools::print(stderr, "strait trace: {}\n", recorded.error().message);
      exit_code = failed;
      return;
    }
    for (const std::string& file : recorded->left_out) tools::print(stderr, "strait trace: left out: {}\n", file);
    tools::print(stdout, "{}", trace::report(*recorded, options->all_calls));
  });
}

}  // namespace strait::tools
