#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "command.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "parsed_option.hpp"
#include "perf/options.hpp"
#include "sim/gpu_ranks.hpp"
#include "sim/sweep.hpp"
#include "sim/training.hpp"
#include "words.hpp"

namespace strait::tools {
namespace {

struct Options {
  sim::SweepOptions sweep;
  sim::TrainingOptions training;
  perf::Options sizes;
  std::string ranks;
  std::string json;
  std::string plot;
  bool train = false;
};

/// "7B" is seven thousand million: powers of ten, as models are named.
Result<double> parse_parameters(std::string_view word) {
  const std::string text(word);
  constexpr std::string_view units = "KMBT";
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const auto unit = used + 1 == text.size() ? units.find(static_cast<char>(std::toupper(text[used]))) : units.npos;
  if (used == 0 || (used < text.size() && unit == units.npos))
    return fail(Code::invalid_argument, "'" + text + "' is not a number. Write 350M, 7B or 1.5e9");
  for (std::size_t i = 0; unit != units.npos && i <= unit; ++i) value *= 1e3;
  return value;
}

Status check_plot(const Options& options) {
  const std::string& path = options.plot;
  if (path.empty() || path.ends_with(".svg") || (path.ends_with(".html") && !options.train)) return {};
  return fail(Code::invalid_argument,
              "--plot " + path + ": the name must end in .svg" + (options.train ? "" : " or .html"));
}

/// Of the machine, for the estimate of training: those of the sweep.
Result<std::vector<std::uint32_t>> ranks_of(const Options& options) {
  if (!options.sweep.ranks.empty()) return options.sweep.ranks;
  STRAIT_ASSIGN(const Machine all, sim::machine_of(options.sweep.machine));
  return sim::default_ranks(all.request.ranks);
}

Status estimate_training(const Options& options) {
  if (options.sweep.operation.collective != Collective::all_reduce)
    return fail(Code::invalid_argument, "--train sums gradients: it goes with all-reduce only");
  if (options.sweep.operation.wire != WireFormat::off)
    return fail(Code::unsupported, "--train sums exact gradients. Leave out --wire");
  STRAIT_TRY(sim::validate(options.training));
  STRAIT_ASSIGN(const auto ranks, ranks_of(options));
  sim::MachineOptions largest = options.sweep.machine;
  largest.ranks = ranks.back();
  STRAIT_ASSIGN(const Machine machine, sim::machine_of(largest));
  STRAIT_ASSIGN(const auto curves, sim::train(options.training, options.sweep.machine, options.sweep.operation.type,
                                              ranks, options.sweep.against));
  const PredictedOn on{machine.name, std::string(sim::caveat_of(machine))};
  if (!options.json.empty()) STRAIT_TRY(write_file(options.json, sim::to_json(options.training, on, curves)));
  if (!options.plot.empty()) STRAIT_TRY(write_file(options.plot, sim::plot_svg(options.training, on, curves)));
  std::cout << sim::to_text(options.training, on, curves);
  return {};
}

Status answer(Options options) {
  if (!options.ranks.empty()) {
    STRAIT_ASSIGN(options.sweep.ranks, sim::parse_ranks(options.ranks));
  }
  STRAIT_TRY(check_plot(options));
  if (options.train) return estimate_training(options);
  options.sizes.collective = options.sweep.operation.collective;
  if (options.sizes.collective == Collective::barrier)
    return fail(Code::unsupported, "a barrier has no sizes. `strait explain barrier` predicts it");
  options.sizes.types = {options.sweep.operation.type};
  STRAIT_TRY(perf::validate(options.sizes));
  options.sweep.sizes_bytes = perf::sizes_bytes(options.sizes);
  options.sweep.progress = [](const std::string& what) { std::cerr << "strait sim: " << what << "\n"; };
  STRAIT_ASSIGN(const sim::Sweep sweep, sim::sweep(options.sweep));
  if (!options.json.empty()) STRAIT_TRY(write_file(options.json, sim::to_json(sweep)));
  if (!options.plot.empty())
    STRAIT_TRY(
        write_file(options.plot, options.plot.ends_with(".html") ? sim::plot_html(sweep) : sim::plot_svg(sweep)));
  std::cout << sim::to_text(sweep);
  return {};
}

void declare_training(CLI::App& command, Options& q) {
  const char* group = "Training";
  CLI::Option* train =
      command.add_flag("--train", q.train, "Estimate data-parallel training whose gradients are summed by all-reduce")
          ->group(group);
  add_parsed(command, "--parameters", q.training.parameters, parse_parameters,
             "Parameters of the model: 350M, 7B (powers of ten)")
      ->needs(train)
      ->group(group);
  command.add_option("--bytes-per-parameter", q.training.bytes_per_parameter, "Bytes of gradient for each parameter")
      ->capture_default_str()
      ->needs(train)
      ->group(group);
  command.add_option("--compute-ms", q.training.compute_ms, "Time of a step's computation on one rank")
      ->needs(train)
      ->group(group);
  command
      .add_option("--backward-share", q.training.backward_share,
                  "Share of that time during which gradients become ready")
      ->capture_default_str()
      ->needs(train)
      ->group(group);
  command.add_option("--buckets", q.training.buckets, "Number of equal parts in which gradients are summed")
      ->capture_default_str()
      ->check(CLI::Range(1U, 10000U))
      ->needs(train)
      ->group(group);
  command.add_option("--samples", q.training.samples, "Samples of one rank in one step")
      ->capture_default_str()
      ->needs(train)
      ->group(group);
}

}  // namespace

void add_sim(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "sim", "Predict bandwidths over sizes and ranks, on this machine or on one that need not exist");
  const auto options = std::make_shared<Options>();
  options->sizes.min_bytes = 1 << 10;
  options->sizes.max_bytes = std::size_t{1} << 28;
  options->sizes.step_factor = 4;
  sim::declare_options(*command, options->sweep.operation, options->sweep.machine);
  command->add_option("--ranks", options->ranks,
                      "Numbers of ranks: 2..10, or 2,4,8 (default: from 2 to all, at most 64)");
  add_parsed(*command, "-b,--minbytes", options->sizes.min_bytes, parse_size, "Smallest size (default: 1K)");
  add_parsed(*command, "-e,--maxbytes", options->sizes.max_bytes, parse_size, "Largest size (default: 256M)");
  command->add_option("-f,--stepfactor", options->sizes.step_factor, "Factor from one size to the next")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  command->add_option("--algorithm", options->sweep.algorithm, "Use this algorithm instead of the automatic choice");
  command->add_option("--against", options->sweep.against, "Algorithms to compare with, such as ring")->delimiter(',');
  command->add_option("--json", options->json, "Write the predictions to this file");
  command->add_option("--plot", options->plot,
                      "Draw the predictions into this file (.svg; without --train also .html)");
  declare_training(*command, *options);
  command->callback([options, &exit_code] { exit_code = report_and_exit_code("sim", answer(*options)); });
}

}  // namespace strait::tools
