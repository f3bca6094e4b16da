#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What all drawings of predictions share: two panels side by side, with curves over sizes or over ranks.
namespace strait::sim {

// Layout, in pixels.
constexpr double panel_width = 440;
constexpr double panel_height = 280;
constexpr double left_margin = 76;
constexpr double panel_gap = 100;
constexpr double figure_width = left_margin + 2 * panel_width + panel_gap + 40;
constexpr double legend_row = 22;

struct Place {
  double x, y;
};

/// Returns the colour of a curve, by its index.
const char* colour(std::size_t curve);
std::string curve_svg(const std::vector<Place>& places, std::size_t index);
/// Draws a panel's title and axes, and the text below it.
std::string frame(double x, double y, const std::string& title, const std::string& below);
/// Draws a row for each curve, the first one at `y`.
std::string legend(const std::vector<std::string>& names, double y);

struct RanksCurve {
  struct Value {
    std::uint32_t ranks;
    double value;
  };
  std::vector<Value> values;  ///< ascending by ranks; at least one
  std::string last_label;     ///< drawn beside the last value
};
/// Draws a panel of values over ranks, with a linear axis from 0. The ticks are at the ranks of the first curve.
std::string ranks_panel(const std::string& title, const std::vector<RanksCurve>& curves, double x, double y);

}  // namespace strait::sim
