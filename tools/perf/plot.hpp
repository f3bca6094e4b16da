#pragma once

#include <string>

#include "perf/report.hpp"

/// Bus bandwidth and latency against size, drawn by hand: one file, no scripts, nothing fetched.
namespace strait::perf {

/// An SVG: for each type, operation and root a row with two panels on logarithmic axes; lines for out of place and in
/// place, bands from the median to the 99th percentile of single iterations.
std::string plot_svg(const Report& report);
/// A page with the drawing and all numbers as a table.
std::string plot_html(const Report& report);

}  // namespace strait::perf
