#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "command.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "parsed_option.hpp"
#include "plan/clock.hpp"
#include "plan/print.hpp"
#include "plan/request.hpp"
#include "words.hpp"

namespace strait::tools {
namespace {

constexpr std::size_t traced_bytes = std::size_t{1} << 20;
constexpr std::uint32_t most_ranks = 256;  // of a plan that someone wants to read

using Printer = Result<std::string> (*)(const Plan&);

template <std::string (*print)(const Plan&)>
Result<std::string> printed(const Plan& plan) {
  return print(plan);
}

struct Options {
  std::string algorithm;
  PlanRequest request;
  Printer print = printed<to_text>;
  std::string path;
};

/// Rank `rank`'s part of the request: a group of sends and receives is drawn as a shift around the ring.
PlanRequest request_of(const PlanRequest& request, std::uint32_t rank) {
  PlanRequest own = request;
  if (request.collective == Collective::send_recv)
    own.point_to_point = {{true, (rank + 1) % request.ranks}, {false, (rank + request.ranks - 1) % request.ranks}};
  return own;
}

std::string_view text_of(Asks asks) {
  switch (asks) {
    case Asks::peer_memory:
      return "with --peer-memory";
    case Asks::islands:
      return "ranks of several islands or hosts; strait explain --topology has such";
    case Asks::something_else:
      return "not this collective on so many ranks";
    default:
      return "";
  }
}

/// Every name that STRAIT_ALGORITHM and --algorithm take, and what it takes here.
std::string listing(const PlanRequest& request) {
  std::string text;
  for (const Algorithm& algorithm : catalogue()) {
    const std::string_view asks = text_of(asks_for(algorithm, request_of(request, 0)));
    const std::string name(algorithm.name);
    text += name + (asks.empty() ? "" : std::string(18 - name.size(), ' ') + std::string(asks)) + "\n";
  }
  return text;
}

Result<Plan> build(const Options& options) {
  const PlanRequest& request = options.request;
  if (request.root >= request.ranks)
    return fail(Code::invalid_argument, "--root " + std::to_string(request.root) + " is not a rank: there are " +
                                            std::to_string(request.ranks));
  const Algorithm* algorithm = find_algorithm(options.algorithm);
  if (algorithm == nullptr)
    return fail(Code::invalid_argument,
                "--algorithm '" + options.algorithm + "' is none. There are: " + algorithm_names());
  if (const Asks asks = asks_for(*algorithm, request_of(request, 0)); asks != Asks::nothing)
    return fail(Code::invalid_argument,
                "--algorithm " + options.algorithm + " has no such plan: " +
                    (asks == Asks::something_else ? "it does no " + std::string(name(request.collective)) + " of " +
                                                        std::to_string(request.ranks) + " ranks"
                                                  : "only " + std::string(text_of(asks))) +
                    ". --algorithm list shows what there is");
  Plan plan;
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank)
    plan.push_back(algorithm->build(request_of(request, rank), rank));
  return plan;
}

/// A run on the clock's default host with a core for each rank.
Result<std::string> to_trace(const Plan& plan) {
  const auto ranks = static_cast<std::uint32_t>(plan.size());
  const ClockSize size{.count = traced_bytes};
  STRAIT_ASSIGN(const ClockResult result, simulate(plan, size, host_model(ranks, ranks)));
  return to_chrome_trace(plan, result);
}

Status answer(const Options& options) {
  if (options.algorithm == "list" || options.algorithm == "?") {
    std::cout << listing(options.request);
    return {};
  }
  STRAIT_ASSIGN(const Plan plan, build(options));
  STRAIT_ASSIGN(const std::string text, options.print(plan));
  if (!options.path.empty()) return write_file(options.path, text);
  std::cout << text;
  return {};
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("plan", "Print the plan of an algorithm: which rank sends what to which, and when");
  const auto options = std::make_shared<Options>();
  PlanRequest& request = options->request;
  request.ranks = 4;
  add_parsed(*command, "collective", request.collective, parse_collective, "Such as all-reduce")->required();
  command->add_option("--algorithm", options->algorithm, "Such as ring; list: print all algorithms")->required();
  command->add_option("--ranks", request.ranks, "Number of ranks")
      ->capture_default_str()
      ->check(CLI::Range(1U, most_ranks));
  command->add_option("--root", request.root, "Root rank")->capture_default_str();
  command->add_option("--lanes", request.lanes, "Lanes that the algorithm may use")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_flag("--peer-memory", request.peer_memory, "Ranks can address one another's buffers");
  CLI::Option_group* format = command->add_option_group("format");
  format->add_flag_callback(
      "--text", [options] { options->print = printed<to_text>; }, "Print a line for each step (default)");
  format->add_flag_callback(
      "--dot", [options] { options->print = printed<to_dot>; }, "Print it for Graphviz");
  format->add_flag_callback(
      "--svg", [options] { options->print = printed<to_svg>; }, "Draw it");
  format->add_flag_callback(
      "--trace", [options] { options->print = to_trace; },
      "Print a timeline of 1 MB on a simulated host, for chrome://tracing or Perfetto");
  format->require_option(0, 1);
  command->add_option("-o,--output", options->path, "Write to this file instead of the terminal");
  command->callback([options, &exit_code] { exit_code = report_and_exit_code("plan", answer(*options)); });
}

}  // namespace strait::tools
