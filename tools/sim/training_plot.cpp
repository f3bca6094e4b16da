#include <fmt/format.h>

#include "perf/figure.hpp"
#include "sim/panels.hpp"
#include "sim/training.hpp"

namespace strait::sim {
namespace {

template <class F>
std::string panel(const std::string& title, const std::vector<TrainingCurve>& curves, double x, double y,
                  const char* label, F&& value_of) {
  std::vector<RanksCurve> drawn;
  for (const TrainingCurve& curve : curves) {
    RanksCurve& each = drawn.emplace_back();
    for (const TrainingPoint& point : curve.points) each.values.push_back({point.ranks, value_of(point)});
    each.last_label = fmt::format(fmt::runtime(label), each.values.back().value);
  }
  return ranks_panel(title, drawn, x, y);
}

}  // namespace

std::string plot_svg(const TrainingOptions& options, const tools::PredictedOn& on,
                     const std::vector<TrainingCurve>& curves) {
  const std::string heading = fmt::format("Data-parallel training on {}: prediction, not measured", on.machine);
  const double panels_y = 92 + legend_row * static_cast<double>(curves.size());
  std::string svg = perf::figure_begin(figure_width, panels_y + panel_height + 60, heading);
  svg += perf::text(left_margin, 32, "start", "title", heading);
  svg +=
      perf::text(left_margin, 54, "start", "tick", description(options) + (on.caveat.empty() ? "" : ". ") + on.caveat);
  std::vector<std::string> names;
  for (const TrainingCurve& curve : curves) names.push_back(curve.name);
  svg += legend(names, 78);
  svg += panel("Samples per second", curves, left_margin, panels_y, "{:.4g}/s",
               [](const TrainingPoint& point) { return point.samples_per_second; });
  svg += panel("Of what as many ranks alone would do (%)", curves, left_margin + panel_width + panel_gap, panels_y,
               "{:.0f}%", [](const TrainingPoint& point) { return 100 * point.efficiency; });
  return svg + "</svg>\n";
}

}  // namespace strait::sim
