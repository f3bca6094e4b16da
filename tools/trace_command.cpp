
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "exit_code.hpp"
#include "safe_print.hpp"
#include "trace/flight.hpp"

namespace strait::tools {

void add_trace(CLI::App& app, int& exit_code) {
  struct Options {
    std::vector<std::string> paths;
    bool all_calls = false;
  };
  CLI::App* command =
      app.add_subcommand("trace", "Show from flight recorder files which rank is behind, and in which call");
  const auto options = std::make_shared<Options>();
  command->add_option("files", options->paths, "The files, or the folder that STRAIT_FLIGHT_RECORDER named")
      ->required();
  command->add_flag("--calls", options->all_calls, "Also print every recorded call");
  command->callback([options, &exit_code] {
    std::vector<std::string> left_out;
    std::vector<trace::RankInInit> inits;
    const auto flights = trace::read_flights(options->paths, &left_out, &inits);
    if (!flights) {
      tools::print(stderr, "strait trace: {}\n", flights.error().message);
      exit_code = failed;
      return;
    }
    for (const std::string& file : left_out) tools::print(stderr, "strait trace: left out: {}\n", file);
    for (const trace::Flight& flight : *flights)
      tools::print(stdout, "{}{}", &flight == &flights->front() ? "" : "\n", trace::report(flight, options->all_calls));
    if (!inits.empty()) tools::print(stdout, "{}{}", flights->empty() ? "" : "\n", trace::report_inits(inits));
  });
}

}  // namespace strait::tools
