#pragma once

#include "perf/options.hpp"

namespace strait::perf {

/// Joins the ranks, which are threads of this process and of the processes of a launcher, and measures. The exit code
/// of the program: 0, or 1 if anything failed or was wrong.
int run(const Options& options);

}  // namespace strait::perf
