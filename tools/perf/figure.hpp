#pragma once

#include <string>

/// The words of our drawings: SVG without scripts or other files. All text that comes from users is escaped here.
namespace strait::perf {

/// The opening of a white drawing, with the styles "title", "panel", "tick", "halo" (below a "tick" on curves), "grid"
/// and "axis"; `</svg>` ends it.
std::string figure_begin(double width, double height, const std::string& label);

/// `anchor`: start, middle or end.
std::string text(double x, double y, const char* anchor, const char* css, const std::string& content);
std::string line(double x1, double y1, double x2, double y2, const char* css);

}  // namespace strait::perf
