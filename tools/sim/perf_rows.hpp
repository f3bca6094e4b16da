#pragma once

#include "perf/options.hpp"
#include "perf/report.hpp"

namespace strait::sim {

/// The table of `strait perf`, predicted: every type, operation, root and size on the machine that --simulate names.
/// In place is taken to cost the same.
Result<perf::Report> predicted_report(const perf::Options& options);

/// Prints it, and writes what --json and --plot ask for. Returns the exit code.
int predict_rows(const perf::Options& options);

}  // namespace strait::sim
