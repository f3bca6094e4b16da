#pragma once

#include "perf/options.hpp"
#include "perf/report.hpp"

namespace strait::sim {

/// Predicts the table of `strait perf`: every type, operation, root and size on the machine that --simulate names.
/// Calls in place are assumed to take as long as those out of place.
Result<perf::Report> predicted_report(const perf::Options& options);

/// Prints the predicted table, and writes the files of --json and --plot. Returns the exit code.
int predict_rows(const perf::Options& options);

}  // namespace strait::sim
