#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "command.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "parsed_option.hpp"
#include "perf/last_times.hpp"
#include "plan/print.hpp"
#include "sim/explain.hpp"
#include "words.hpp"

namespace strait::tools {
namespace {

constexpr std::size_t most_drawn_ranks = 64;

struct Options {
  sim::OperationOptions operation;
  sim::MachineOptions machine;
  std::size_t bytes = std::size_t{64} << 20;
  std::string algorithm;
  std::string measured;
  std::string svg;
  std::string trace;
  bool json = false;
  bool plan = false;
};

/// The ranks of a plan beyond those of the machine.
std::string companions(const sim::Explanation& e, const Plan& plan) {
  const std::uint32_t ranks = e.machine.request.ranks;
  if (plan.size() == ranks) return "";
  return "Ranks " + std::to_string(ranks) + " to " + std::to_string(2 * ranks - 1) +
         " are the CPUs that add for ranks 0 to " + std::to_string(ranks - 1) + ".\n";
}

/// The last measured time on this machine.
void recall(sim::Explanation& e) {
  const Environment environment;
  const auto path = perf::last_times_path(environment);
  if (!path) return;
  auto found = sim::find_kept(*path, e, environment);
  if (found)
    e.measured = std::move(*found);
  else
    e.not_measured = found.error().message;
}

/// Into the files that were asked for. Plans of many ranks take memory and time, so that nothing else builds them.
Status write_plan(const Options& options, const sim::Explanation& e) {
  if (options.svg.empty() && options.trace.empty()) return {};
  const PredictedPlan& choice = e.prediction.choice();
  if (choice.estimated && !options.trace.empty())
    return fail(Code::unsupported,
                "--trace: times of so many ranks are estimates, which have no timeline. Take fewer --ranks");
  STRAIT_ASSIGN(const Plan plan, build_plan(e.machine, e.operation, choice));
  if (!options.svg.empty()) {
    if (plan.size() > most_drawn_ranks)
      return fail(Code::unsupported, "--svg: nobody can read a drawing of " + std::to_string(plan.size()) +
                                         " ranks. Take fewer --ranks; it shows the same pattern");
    STRAIT_TRY(write_file(options.svg, to_svg(plan)));
  }
  if (!options.trace.empty()) STRAIT_TRY(write_file(options.trace, to_chrome_trace(plan, choice.time)));
  return {};
}

Status answer(const Options& options) {
  STRAIT_TRY(check_svg("--svg", options.svg));
  const Progress progress = [](const std::string& what) { std::cerr << "strait explain: " << what << "\n"; };
  STRAIT_ASSIGN(sim::Explanation e,
                sim::explain(options.machine, options.operation, options.bytes, options.algorithm, progress));
  auto left_out = sim::settings_left_out(Environment());
  if (!left_out) return fail(Code::invalid_usage, left_out.error().message);  // the options themselves are right
  e.left_out = std::move(*left_out);
  if (!options.measured.empty()) {
    STRAIT_ASSIGN(e.measured, sim::find_measured(options.measured, e));
    if (!e.measured)
      e.not_measured = options.measured +
                       " has no such call: the same one, on as many GPUs or host ranks, with the same wire format, and "
                       "without -R, -G, -m, -z, -a, --extra-elements and --offset-bytes";
  } else if (options.machine.topology.empty() && options.algorithm.empty()) {
    recall(e);
  }
  STRAIT_TRY(write_plan(options, e));
  std::cout << (options.json ? sim::to_json(e) : sim::to_text(e));
  if (!options.plan) return {};
  STRAIT_ASSIGN(const Plan plan, build_plan(e.machine, e.operation, e.prediction.choice()));
  std::cout << "\n" << companions(e, plan) << to_text(plan);
  return {};
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("explain", "Show which plan an operation would run, why, and how long it would take");
  const auto options = std::make_shared<Options>();
  sim::declare_options(*command, options->operation, options->machine);
  add_parsed(*command, "size", options->bytes, parse_size,
             "Bytes, counted as `strait perf` does: 8, 1K, 64M, 1G (default: 64M)");
  command->add_option("--ranks", options->machine.ranks, "Number of ranks, on the first GPUs in order (default: all)")
      ->check(CLI::Range(1U, most_placed_ranks));
  command->add_option("--algorithm", options->algorithm, "Explain this algorithm instead of the automatic choice");
  command->add_option("--measured", options->measured,
                      "Results of `strait perf --json` to compare with (default: the last ones of this machine)");
  CLI::Option* json = command->add_flag("--json", options->json, "Print JSON, for programs");
  command->add_flag("--plan", options->plan, "Also print the steps of the plan")->excludes(json);
  command->add_option("--svg", options->svg, "Draw the plan into this file");
  command->add_option("--trace", options->trace, "Write the predicted timeline for chrome://tracing or Perfetto");
  command->callback([options, &exit_code] { exit_code = report_and_exit_code("explain", answer(*options)); });
}

}  // namespace strait::tools
