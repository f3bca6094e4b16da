#pragma once

#include <string>
#include <string_view>

#include "perf/options.hpp"

/// Comparison of the options of the processes that a launcher has started. All ranks of a run must measure the same.
namespace strait::perf {

/// Returns the options that all processes must have in common, as a line "--name value" each. `threads`: those of this
/// process, also where no -t was given. Left out are the options that only concern the files of one process (--json,
/// --plot, the path of --baseline) and what comes before the measurement (--calibrate).
std::string shared_options(const Options& options, int threads);

/// Compares two results of shared_options(). Returns "" if they are equal, otherwise a text that names the first option
/// that differs, and both values.
std::string difference_to_first(std::string_view mine, std::string_view first);

}  // namespace strait::perf
