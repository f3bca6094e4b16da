#include <fmt/format.h>

#include <algorithm>

#include "base/time_text.hpp"
#include "base/xml_text.hpp"
#include "perf/axis.hpp"
#include "perf/figure.hpp"
#include "sim/panels.hpp"
#include "sim/sweep.hpp"

namespace strait::sim {
namespace {

using perf::line;
using perf::text;

// Layout, in pixels.
constexpr double bar_height = 15;
constexpr double bar_left = left_margin + 100;
constexpr double bar_width = 420;
constexpr std::size_t most_ticks = 9;

std::string size_panel(const Sweep& sweep, double x, double y) {
  std::vector<double> bytes, gbps;
  for (const Curve& curve : sweep.by_size)
    for (const Point& point : curve.points)
      if (point.rates.bus_gbps > 0 && point.bytes > 0) {
        bytes.push_back(static_cast<double>(point.bytes));
        gbps.push_back(point.rates.bus_gbps);
      }
  const std::uint32_t ranks = sweep.by_size.front().points.front().ranks;
  std::string svg = frame(x, y, fmt::format("Bus bandwidth on {} ranks (GB/s)", ranks), "size (bytes)");
  if (bytes.empty()) return svg + text(x + panel_width / 2, y + panel_height / 2, "middle", "tick", "nothing to draw");
  const auto [smallest, largest] = std::minmax_element(bytes.begin(), bytes.end());
  const perf::LogAxis sizes(*smallest, *largest, x + 12, x + panel_width - 12);
  const auto values = perf::LogAxis::around(gbps, y + panel_height, y);
  for (const double tick : values.decimal_ticks())
    svg += line(x, values.position(tick), x + panel_width, values.position(tick), "grid") +
           text(x - 8, values.position(tick) + 4, "end", "tick", perf::tick_label(tick));
  for (const double tick : sizes.binary_ticks(most_ticks))
    svg += text(sizes.position(tick), y + panel_height + 18, "middle", "tick", perf::bytes_label(tick));
  for (std::size_t i = 0; i < sweep.by_size.size(); ++i) {
    std::vector<Place> places;
    for (const Point& point : sweep.by_size[i].points)
      if (point.rates.bus_gbps > 0 && point.bytes > 0)
        places.push_back({sizes.position(static_cast<double>(point.bytes)), values.position(point.rates.bus_gbps)});
    svg += curve_svg(places, i);
  }
  return svg;
}

std::string bandwidth_over_ranks(const Sweep& sweep, double x, double y) {
  std::vector<RanksCurve> curves;
  for (const Curve& curve : sweep.by_ranks) {
    RanksCurve& drawn = curves.emplace_back();
    for (const Point& point : curve.points) drawn.values.push_back({point.ranks, point.rates.bus_gbps});
    const Point& last = curve.points.back();
    drawn.last_label = fmt::format("{:.3g} GB/s, {}", last.rates.bus_gbps, time_text(last.plan.time.total_us));
  }
  const auto bytes = static_cast<double>(sweep.by_ranks.front().points.front().bytes);
  return ranks_panel(fmt::format("Bus bandwidth of {} (GB/s)", perf::bytes_label(bytes)), curves, x, y);
}

double levels_height(const Sweep& sweep) {
  std::size_t bars = 0;
  for (const Curve& curve : sweep.by_ranks) bars += std::max<std::size_t>(1, curve.points.back().levels.size());
  return static_cast<double>(bars) * (bar_height + 5) + static_cast<double>(sweep.by_ranks.size()) * 28 + 36;
}

/// Draws how busy the busiest resource of each level is, at the largest size on the most ranks.
std::string level_bars(const Sweep& sweep, double y) {
  const Point& largest = sweep.by_ranks.front().points.back();
  std::string svg =
      text(left_margin, y, "start", "panel",
           fmt::format("How busy each level of the machine is: {} on {} ranks, the busiest resource of each",
                       perf::bytes_label(static_cast<double>(largest.bytes)), largest.ranks));
  y += 10;
  for (std::size_t i = 0; i < sweep.by_ranks.size(); ++i) {
    const Point& point = sweep.by_ranks[i].points.back();
    y += 22;
    svg += text(left_margin, y, "start", "tick",
                fmt::format("{}: {} ({})", sweep.by_ranks[i].name, point.plan.algorithm, point.plan.executor));
    y += 6;
    if (point.levels.empty()) y += bar_height + 5;
    for (const LevelUse& use : point.levels) {
      const double width = bar_width * std::min(1.0, use.busy);
      svg += text(bar_left - 8, y + bar_height - 3, "end", "tick", use.level);
      svg += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"#eeeeee\"/>\n", bar_left, y,
                         bar_width, bar_height);
      svg += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", bar_left, y,
                         width, bar_height, colour(i));
      svg += text(bar_left + bar_width + 8, y + bar_height - 3, "start", "tick",
                  fmt::format("{:.0f}%  {}", 100 * use.busy, use.resource));
      y += bar_height + 5;
    }
  }
  return svg;
}

std::string heading(const Sweep& sweep) {
  return fmt::format("{} on {}: prediction, not measured", name(sweep.operation.collective), sweep.on.machine);
}

}  // namespace

std::string plot_svg(const Sweep& sweep) {
  const double panels_y = 92 + legend_row * static_cast<double>(sweep.by_size.size());
  const double bars_y = panels_y + panel_height + 84;
  std::string svg = perf::figure_begin(figure_width, bars_y + levels_height(sweep), heading(sweep));
  svg += text(left_margin, 32, "start", "title", heading(sweep));
  svg += text(left_margin, 54, "start", "tick",
              fmt::format("{}, {}; simulated by Strait's clock{}{}", name(sweep.operation.type),
                          op_text(sweep.operation), sweep.on.caveat.empty() ? "" : ". ", sweep.on.caveat));
  std::vector<std::string> names;
  for (const Curve& curve : sweep.by_size) names.push_back(curve.name);
  svg += legend(names, 78);
  svg += size_panel(sweep, left_margin, panels_y);
  svg += bandwidth_over_ranks(sweep, left_margin + panel_width + panel_gap, panels_y);
  return svg + level_bars(sweep, bars_y) + "</svg>\n";
}

std::string plot_html(const Sweep& sweep) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>body{{font-family:"
      "Helvetica,Arial,sans-serif;margin:24px}}svg{{max-width:100%;height:auto}}pre{{font-size:12px}}</style></head>\n"
      "<body>\n{1}<pre>\n{2}</pre>\n</body></html>\n",
      xml_text(heading(sweep)), plot_svg(sweep), xml_text(to_text(sweep)));
}

}  // namespace strait::sim
