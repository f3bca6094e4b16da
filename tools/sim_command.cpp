#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "command.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "parsed_option.hpp"
#include "perf/options.hpp"
#include "sim/sweep.hpp"
#include "sim/training.hpp"
#include "words.hpp"

namespace strait::tools {
namespace {

struct Question {
  sim::SweepWish sweep;
  sim::TrainingWish training;
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

Status check_plot(const Question& question) {
  const std::string& path = question.plot;
  if (path.empty() || path.ends_with(".svg") || (path.ends_with(".html") && !question.train)) return {};
  return fail(Code::invalid_argument,
              "--plot " + path + ": the name must end in .svg" + (question.train ? "" : " or .html"));
}

/// Of the machine, for the estimate of training: those of the sweep.
Result<std::vector<std::uint32_t>> ranks_of(const Question& question) {
  if (!question.sweep.ranks.empty()) return question.sweep.ranks;
  STRAIT_ASSIGN(const Machine all, sim::machine_of(question.sweep.machine));
  return sim::default_ranks(all.request.ranks);
}

Status estimate_training(const Question& question) {
  if (question.sweep.operation.collective != Collective::all_reduce)
    return fail(Code::invalid_argument, "--train sums gradients: it goes with all-reduce only");
  if (question.sweep.operation.wire != WireFormat::off)
    return fail(Code::unsupported, "--train sums exact gradients. Leave out --wire");
  STRAIT_TRY(sim::validate(question.training));
  STRAIT_ASSIGN(const auto ranks, ranks_of(question));
  sim::MachineWish largest = question.sweep.machine;
  largest.ranks = ranks.back();
  STRAIT_ASSIGN(const Machine machine, sim::machine_of(largest));
  STRAIT_ASSIGN(const auto curves, sim::train(question.training, question.sweep.machine, question.sweep.operation.type,
                                              ranks, question.sweep.against));
  if (!question.json.empty())
    STRAIT_TRY(write_file(question.json, sim::to_json(question.training, machine.name, curves)));
  if (!question.plot.empty())
    STRAIT_TRY(write_file(question.plot, sim::plot_svg(question.training, machine.name, curves)));
  std::cout << sim::to_text(question.training, machine.name, curves);
  return {};
}

Status answer(Question question) {
  if (!question.ranks.empty()) {
    STRAIT_ASSIGN(question.sweep.ranks, sim::parse_ranks(question.ranks));
  }
  STRAIT_TRY(check_plot(question));
  if (question.train) return estimate_training(question);
  question.sizes.collective = question.sweep.operation.collective;
  if (question.sizes.collective == Collective::barrier)
    return fail(Code::unsupported, "a barrier has no sizes. `strait explain barrier` predicts it");
  STRAIT_TRY(perf::validate(question.sizes));
  question.sweep.sizes_bytes = perf::sizes_bytes(question.sizes);
  question.sweep.progress = [](const std::string& what) { std::cerr << "strait sim: " << what << "\n"; };
  STRAIT_ASSIGN(const sim::Sweep sweep, sim::sweep(question.sweep));
  if (!question.json.empty()) STRAIT_TRY(write_file(question.json, sim::to_json(sweep)));
  if (!question.plot.empty())
    STRAIT_TRY(
        write_file(question.plot, question.plot.ends_with(".html") ? sim::plot_html(sweep) : sim::plot_svg(sweep)));
  std::cout << sim::to_text(sweep);
  return {};
}

void declare_training(CLI::App& command, Question& q) {
  const char* group = "Training";
  CLI::Option* train =
      command.add_flag("--train", q.train, "Estimate data-parallel training, gradients summed by all-reduce")
          ->group(group);
  add_parsed(command, "--parameters", q.training.parameters, parse_parameters, "Of the model: 350M, 7B (powers of ten)")
      ->needs(train)
      ->group(group);
  command.add_option("--bytes-per-parameter", q.training.bytes_per_parameter, "Of a gradient")
      ->capture_default_str()
      ->needs(train)
      ->group(group);
  command.add_option("--compute-ms", q.training.compute_ms, "A step's computation on one rank")
      ->needs(train)
      ->group(group);
  command.add_option("--backward-share", q.training.backward_share, "Of it, while gradients become ready")
      ->capture_default_str()
      ->needs(train)
      ->group(group);
  command.add_option("--buckets", q.training.buckets, "Equal parts in which gradients are summed")
      ->capture_default_str()
      ->check(CLI::Range(1U, 10000U))
      ->needs(train)
      ->group(group);
  command.add_option("--samples", q.training.samples, "Of a rank in a step")
      ->capture_default_str()
      ->needs(train)
      ->group(group);
}

}  // namespace

void add_sim(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("sim", "Predict bandwidths over sizes and ranks, on this machine or one that nobody has");
  const auto question = std::make_shared<Question>();
  question->sizes.min_bytes = 1 << 10;
  question->sizes.max_bytes = std::size_t{1} << 28;
  question->sizes.step_factor = 4;
  sim::declare_wishes(*command, question->sweep.operation, question->sweep.machine);
  command->add_option("--ranks", question->ranks, "2..10, or 2,4,8 (default: up to all, or to 64)");
  add_parsed(*command, "-b,--minbytes", question->sizes.min_bytes, parse_size, "Smallest size (default: 1K)");
  add_parsed(*command, "-e,--maxbytes", question->sizes.max_bytes, parse_size, "Largest size (default: 256M)");
  command->add_option("-f,--stepfactor", question->sizes.step_factor, "From size to size")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  command->add_option("--algorithm", question->sweep.algorithm, "This one instead of the choice");
  command->add_option("--against", question->sweep.against, "Algorithms to compare with, such as ring")->delimiter(',');
  command->add_option("--json", question->json, "Write the predictions to this file");
  command->add_option("--plot", question->plot, "Draw them into this file (.svg; sweeps also .html)");
  declare_training(*command, *question);
  command->callback([question, &exit_code] {
    if (auto status = answer(*question); !status) {
      std::cerr << "strait sim: " << status.error().message << "\n";
      exit_code = exit_code_of(status.error());
    }
  });
}

}  // namespace strait::tools
