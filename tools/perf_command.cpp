#include <CLI/CLI.hpp>
#include <memory>

#include "command.hpp"
#include "perf/options.hpp"
#include "perf/session.hpp"

namespace strait::tools {

void add_perf(CLI::App& app, int& exit_code) {
  CLI::App* perf = app.add_subcommand("perf", "Measure and verify a collective (options as in nccl-tests)");
  const auto options = std::make_shared<perf::Options>();
  perf::declare_options(*perf, *options);
  perf->callback([options, &exit_code] {
    if (auto status = perf::validate(*options); !status) throw CLI::ValidationError(status.error().message);
    exit_code = perf::run(*options);
  });
}

}  // namespace strait::tools
