#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What drawings of predictions have in common: two panels side by side, with curves over sizes or ranks.
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

/// The colour of a curve, by its number.
const char* colour(std::size_t curve);
std::string curve_svg(const std::vector<Place>& places, std::size_t index);
/// A panel's title, axes and what is below it.
std::string frame(double x, double y, const std::string& title, const std::string& below);
/// A row for each curve, from `y` on.
std::string legend(const std::vector<std::string>& names, double y);

struct RanksCurve {
  struct Value {
    std::uint32_t ranks;
    double value;
  };
  std::vector<Value> values;  ///< by ranks, at least one
  std::string last_label;     ///< beside the last
};
/// Values from 0 on over ranks, those of the first curve.
std::string ranks_panel(const std::string& title, const std::vector<RanksCurve>& curves, double x, double y);

}  // namespace strait::sim
