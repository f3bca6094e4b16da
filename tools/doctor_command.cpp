#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "doctor/calibrate.hpp"
#include "doctor/calibrate_plans.hpp"
#include "doctor/check_calibration.hpp"
#include "doctor/checks.hpp"
#include "doctor/deep.hpp"
#include "doctor/print.hpp"
#include "topology/detect.hpp"

namespace strait::tools {
namespace {

struct Options {
  bool calibrates = false;
  bool plans = false;
  bool deep = false;
  bool json = false;
  std::string calibration_path;
  std::vector<std::uint32_t> rank_counts;
  std::vector<std::size_t> sizes_bytes;
};

int examine(const Options& options) {
  doctor::Findings findings = doctor::check_all(doctor::this_machine());
  if (const auto topology = detect()) {
    const doctor::Findings more = doctor::check_calibration(*topology, known_rates(Environment()));
    findings.insert(findings.end(), more.begin(), more.end());
  }
  if (options.deep) {
    const doctor::Findings more = doctor::check_under_load();
    findings.insert(findings.end(), more.begin(), more.end());
    const doctor::Findings gpus = doctor::check_gpus_under_load();
    findings.insert(findings.end(), gpus.begin(), gpus.end());
  }
  std::cout << (options.json ? doctor::to_json(findings) : doctor::to_text(findings));
  return doctor::exit_code(findings);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Look for what makes this machine slow. Exit codes: 0 nothing to fix, 1 warnings, 2 errors");
  const auto options = std::make_shared<Options>();
  CLI::Option* calibrate = command->add_flag("--calibrate", options->calibrates,
                                             "Measure this machine's rates (10 s, longer if it is busy) and keep them");
  CLI::Option* plans =
      command
          ->add_flag(
              "--plans", options->plans,
              "After --calibrate: time every plan of host ranks (two minutes) and keep how far the rates mispredict it")
          ->excludes(calibrate);
  command
      ->add_option("--ranks", options->rank_counts, "With --plans: numbers of ranks (default: 2, 4, and one per core)")
      ->needs(plans)
      ->check(CLI::Range(2, 256))
      ->delimiter(',');
  command
      ->add_option("--sizes", options->sizes_bytes, "With --plans: message sizes (default: six sizes from 1K to 32M)")
      ->needs(plans)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(64, 1 << 30))
      ->delimiter(',');
  command->add_option("-o,--output", options->calibration_path,
                      "With --calibrate or --plans: keep the results in this file instead");
  command
      ->add_flag("--deep", options->deep,
                 "Also run verified collectives on all cores and GPUs, and report slow ranks, GPUs and links")
      ->excludes(calibrate)
      ->excludes(plans);
  command->add_flag("--json", options->json, "Print JSON, for scripts")->excludes(calibrate)->excludes(plans);
  command->callback([options, &exit_code] {
    if (!options->calibration_path.empty() && !options->calibrates && !options->plans)
      throw CLI::ValidationError("--output is the file of --calibrate or --plans");
    exit_code = options->calibrates ? doctor::calibrate(options->calibration_path)
                : options->plans
                    ? doctor::calibrate_plans(options->calibration_path, options->rank_counts, options->sizes_bytes)
                    : examine(*options);
  });
}

}  // namespace strait::tools
