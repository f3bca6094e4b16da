#include <CLI/CLI.hpp>
#include <memory>

#include "command.hpp"
#include "doctor/calibrate.hpp"
#include "perf/options.hpp"
#include "perf/session.hpp"
#include "sim/perf_rows.hpp"

namespace strait::tools {

void add_perf(CLI::App& app, int& exit_code) {
  CLI::App* perf = app.add_subcommand("perf", "Measure and verify a collective (options as in nccl-tests)");
  const auto options = std::make_shared<perf::Options>();
  perf::declare_options(*perf, *options);
  perf->callback([options, &exit_code] {
    if (auto status = perf::validate(*options); !status) throw CLI::ValidationError(status.error().message);
    if (!options->simulate.empty()) {
      exit_code = sim::predict_rows(*options);
      return;
    }
    if (options->calibrates && (exit_code = doctor::calibrate_if_missing()) != 0) return;
    exit_code = perf::run(*options);
  });
}

}  // namespace strait::tools
