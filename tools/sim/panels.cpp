#include "sim/panels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "perf/figure.hpp"

namespace strait::sim {
namespace {

using perf::line;
using perf::text;

/// The palette of Okabe and Ito, whose colours can be told apart with any kind of colour vision. In black-and-white
/// print the dashes tell the curves apart.
constexpr std::array<const char*, 4> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7"};
constexpr std::array<const char*, 4> dashes{"none", "7 4", "2 3", "9 3 2 3"};

constexpr double label_height = 18;

/// A linear axis from 0.
struct Axis {
  double low, high, from, to;
  double position(double value) const { return high > low ? from + (to - from) * (value - low) / (high - low) : from; }
};

/// Returns 1, 2 or 5 times a power of ten, such that at most `count` steps reach `value`.
double tick_step(double value, double count) {
  const double power = std::pow(10, std::floor(std::log10(value / count)));
  for (const double digit : {1.0, 2.0, 5.0})
    if (digit * power * count >= value) return digit * power;
  return 10 * power;
}

struct EndLabel {
  Place place;
  std::string text;
};

/// Draws labels above the ends of their curves, in the order of these ends. Labels that would overlap are moved down,
/// or up if they would be below `bottom`.
std::string labels_svg(std::vector<EndLabel> labels, double bottom) {
  std::stable_sort(labels.begin(), labels.end(),
                   [](const EndLabel& a, const EndLabel& b) { return a.place.y < b.place.y; });
  double next_y = -1e9;
  for (EndLabel& label : labels) {
    label.place.y = std::max(label.place.y, next_y);
    next_y = label.place.y + label_height;
  }
  double last_y = bottom;
  std::string svg;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    label->place.y = std::min(label->place.y, last_y);
    last_y = label->place.y - label_height;
    for (const char* css : {"halo", "tick"}) svg += text(label->place.x, label->place.y, "end", css, label->text);
  }
  return svg;
}

}  // namespace

const char* colour(std::size_t curve) { return colours[curve % colours.size()]; }

std::string curve_svg(const std::vector<Place>& places, std::size_t index) {
  std::string path, markers;
  for (const Place& place : places) {
    path += fmt::format("{:.1f},{:.1f} ", place.x, place.y);
    markers +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\" fill=\"{}\"/>\n", place.x, place.y, colour(index));
  }
  return fmt::format(
             "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" stroke-dasharray=\"{}\" "
             "stroke-linejoin=\"round\"/>\n",
             path, colour(index), dashes[index % dashes.size()]) +
         markers;
}

std::string frame(double x, double y, const std::string& title, const std::string& below) {
  return text(x, y - 12, "start", "panel", title) +
         line(x, y + panel_height, x + panel_width, y + panel_height, "axis") +
         line(x, y, x, y + panel_height, "axis") +
         text(x + panel_width / 2, y + panel_height + 40, "middle", "tick", below);
}

std::string legend(const std::vector<std::string>& names, double y) {
  std::string svg;
  for (std::size_t i = 0; i < names.size(); ++i, y += legend_row)
    svg += curve_svg({{left_margin, y - 4}, {left_margin + 36, y - 4}}, i) +
           text(left_margin + 48, y, "start", "tick", names[i]);
  return svg;
}

std::string ranks_panel(const std::string& title, const std::vector<RanksCurve>& curves, double x, double y) {
  double most = 0;
  for (const RanksCurve& curve : curves)
    for (const RanksCurve::Value& value : curve.values) most = std::max(most, value.value);
  std::string svg = frame(x, y, title, "ranks");
  if (most <= 0) return svg;
  const auto& first = curves.front().values;
  const double step = tick_step(most, 5);
  const Axis values{0, step * std::ceil(most / step), y + panel_height, y};
  const Axis ranks{static_cast<double>(first.front().ranks), static_cast<double>(first.back().ranks), x + 16,
                   x + panel_width - 16};
  for (double tick = 0; tick <= values.high * (1 + 1e-9); tick += step)
    svg += line(x, values.position(tick), x + panel_width, values.position(tick), "grid") +
           text(x - 8, values.position(tick) + 4, "end", "tick", fmt::format("{:.4g}", tick));
  double last_label = -1e9;
  for (const RanksCurve::Value& value : first) {
    const double at = ranks.position(value.ranks);
    if (at - last_label < 24) continue;
    svg += text(at, y + panel_height + 18, "middle", "tick", std::to_string(value.ranks));
    last_label = at;
  }
  std::vector<EndLabel> labels;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    std::vector<Place> places;
    for (const RanksCurve::Value& value : curves[i].values)
      places.push_back({ranks.position(value.ranks), values.position(value.value)});
    svg += curve_svg(places, i);
    labels.push_back({{places.back().x, places.back().y - 9}, curves[i].last_label});
  }
  return svg + labels_svg(std::move(labels), y + panel_height - 4);
}

}  // namespace strait::sim
