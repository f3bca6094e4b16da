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

struct Wish {
  bool calibrates = false;
  bool plans = false;
  bool deep = false;
  bool json = false;
  std::string calibration_path;
  std::vector<std::uint32_t> rank_counts;
  std::vector<std::size_t> sizes_bytes;
};

int examine(const Wish& wish) {
  doctor::Findings findings = doctor::check_all(doctor::this_machine());
  if (const auto topology = detect()) {
    const doctor::Findings more = doctor::check_calibration(*topology, known_rates(Environment()));
    findings.insert(findings.end(), more.begin(), more.end());
  }
  if (wish.deep) {
    const doctor::Findings more = doctor::check_under_load();
    findings.insert(findings.end(), more.begin(), more.end());
    const doctor::Findings gpus = doctor::check_gpus_under_load();
    findings.insert(findings.end(), gpus.begin(), gpus.end());
  }
  std::cout << (wish.json ? doctor::to_json(findings) : doctor::to_text(findings));
  return doctor::exit_code(findings);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Look for what makes this machine slow. Exit codes: 0 nothing to mend, 1 warnings, 2 errors");
  const auto wish = std::make_shared<Wish>();
  CLI::Option* calibrate = command->add_flag(
      "--calibrate", wish->calibrates, "Measure this machine's rates (10 s, longer where it is busy) and keep them");
  CLI::Option* plans =
      command
          ->add_flag(
              "--plans", wish->plans,
              "After --calibrate: time every plan of host ranks (two minutes) and keep what the rates leave over")
          ->excludes(calibrate);
  command->add_option("--ranks", wish->rank_counts, "With --plans: numbers of ranks (default: 2, 4, and one a core)")
      ->needs(plans)
      ->check(CLI::Range(2, 256))
      ->delimiter(',');
  command->add_option("--sizes", wish->sizes_bytes, "With --plans: bytes (default: six sizes from 1K to 32M)")
      ->needs(plans)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(64, 1 << 30))
      ->delimiter(',');
  command->add_option("-o,--output", wish->calibration_path, "With --calibrate or --plans: another file");
  command
      ->add_flag("--deep", wish->deep,
                 "Also run verified collectives on all cores and GPUs, and name slow ranks, GPUs and links")
      ->excludes(calibrate)
      ->excludes(plans);
  command->add_flag("--json", wish->json, "For scripts")->excludes(calibrate)->excludes(plans);
  command->callback([wish, &exit_code] {
    if (!wish->calibration_path.empty() && !wish->calibrates && !wish->plans)
      throw CLI::ValidationError("--output is the file of --calibrate or --plans");
    exit_code = wish->calibrates ? doctor::calibrate(wish->calibration_path)
                : wish->plans    ? doctor::calibrate_plans(wish->calibration_path, wish->rank_counts, wish->sizes_bytes)
                                 : examine(*wish);
  });
}

}  // namespace strait::tools
