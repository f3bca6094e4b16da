#include "perf/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/xml_text.hpp"
#include "perf/axis.hpp"
#include "perf/figure.hpp"
#include "perf/table.hpp"

namespace strait::perf {
namespace {

// Layout, in pixels.
constexpr double panel_width = 460;
constexpr double panel_height = 300;
constexpr double left_margin = 76;
constexpr double gap = 96;
constexpr double heading_height = 84;
constexpr double row_height = panel_height + 104;
constexpr double figure_width = left_margin + 2 * panel_width + gap + 32;
constexpr std::size_t most_size_labels = 9;

/// Colours of Okabe and Ito: told apart with any colour vision, and by marker and dashes in print.
struct Style {
  const char* label;
  const char* colour;
  const char* dashes;
  bool square;
};

/// What a row may have measured, and how it is drawn.
struct Form {
  Style style;
  bool of_baseline;
  const Measurement* (*of)(const Row&);
};
const Measurement* pointer(const std::optional<Measurement>& m) { return m ? &*m : nullptr; }
constexpr Form forms[] = {
    {{"out of place", "#0072b2", "none", false}, false, [](const Row& row) { return &row.out_of_place; }},
    {{"in place", "#d55e00", "6 4", true}, false, [](const Row& row) { return pointer(row.in_place); }},
    {{"baseline, out of place", "#009e73", "2 3", false},
     true,
     [](const Row& row) { return pointer(row.baseline_out_of_place); }},
    {{"baseline, in place", "#cc79a7", "9 3 2 3", true},
     true,
     [](const Row& row) { return pointer(row.baseline_in_place); }},
};

struct Point {
  double bytes;
  double value;
  double at_p50;  ///< 0: not measured
  double at_p99;

  bool has_band() const { return at_p50 > 0 && at_p99 > 0; }
};

struct Series {
  Style style;
  std::vector<Point> points;
};

struct Panel {
  std::string title;
  std::vector<Series> series;
  double x;
  double y;
};

Point bandwidth_point(double bytes, const Measurement& m) {
  return {bytes, m.bus_gbps, m.bus_gbps_at(m.p50_us), m.bus_gbps_at(m.p99_us)};
}
Point latency_point(double bytes, const Measurement& m) { return {bytes, m.time_us, m.p50_us, m.p99_us}; }

using MakePoint = Point (*)(double, const Measurement&);

/// What a logarithmic axis can show of the rows.
std::vector<Series> series_of(std::span<const Row> rows, MakePoint make) {
  std::vector<Series> result;
  for (const Form& form : forms) {
    Series series{form.style, {}};
    for (const Row& row : rows) {
      const Measurement* m = form.of(row);
      if (m == nullptr || row.bytes == 0) continue;
      const Point point = make(static_cast<double>(row.bytes), *m);
      if (point.value > 0) series.points.push_back(point);
    }
    if (!series.points.empty()) result.push_back(std::move(series));
  }
  return result;
}

std::string marker(double x, double y, const Style& style) {
  if (style.square)
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"6\" height=\"6\" fill=\"{}\"/>\n", x - 3, y - 3,
                       style.colour);
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\" fill=\"{}\"/>\n", x, y, style.colour);
}

std::string axes(const Panel& panel, const LogAxis& sizes, const LogAxis& values) {
  const double right = panel.x + panel_width;
  const double bottom = panel.y + panel_height;
  std::string svg = text(panel.x, panel.y - 12, "start", "panel", panel.title);
  for (const double tick : values.decimal_ticks()) {
    const double y = values.position(tick);
    svg += line(panel.x, y, right, y, "grid") + text(panel.x - 8, y + 4, "end", "tick", tick_label(tick));
  }
  for (const double tick : sizes.binary_ticks(most_size_labels)) {
    const double x = sizes.position(tick);
    svg += line(x, panel.y, x, bottom, "grid") + text(x, bottom + 18, "middle", "tick", bytes_label(tick));
  }
  svg += line(panel.x, bottom, right, bottom, "axis") + line(panel.x, panel.y, panel.x, bottom, "axis");
  return svg + text(panel.x + panel_width / 2, bottom + 40, "middle", "tick", "size (bytes)");
}

std::string curve(const Series& series, const LogAxis& sizes, const LogAxis& values) {
  std::string path, median, tail, markers;
  for (const Point& point : series.points) {
    const double x = sizes.position(point.bytes);
    const double y = values.position(point.value);
    path += fmt::format("{:.1f},{:.1f} ", x, y);
    markers += marker(x, y, series.style);
    if (!point.has_band()) continue;
    median += fmt::format("{:.1f},{:.1f} ", x, values.position(point.at_p50));
    tail = fmt::format("{:.1f},{:.1f} ", x, values.position(point.at_p99)) + tail;
  }
  const std::string band =
      fmt::format("<polygon points=\"{}{}\" fill=\"{}\" fill-opacity=\"0.15\"/>\n", median, tail, series.style.colour);
  return (median.empty() ? "" : band) +
         fmt::format(
             "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\" "
             "stroke-linejoin=\"round\"/>\n",
             path, series.style.colour, series.style.dashes) +
         markers;
}

std::string draw(const Panel& panel) {
  std::vector<double> bytes, shown;
  for (const Series& series : panel.series)
    for (const Point& point : series.points) {
      bytes.push_back(point.bytes);
      shown.push_back(point.value);
      if (point.has_band()) shown.insert(shown.end(), {point.at_p50, point.at_p99});
    }
  if (bytes.empty())
    return text(panel.x, panel.y - 12, "start", "panel", panel.title) +
           text(panel.x + panel_width / 2, panel.y + panel_height / 2, "middle", "tick", "nothing to draw");
  const auto [smallest, largest] = std::minmax_element(bytes.begin(), bytes.end());
  const LogAxis sizes(*smallest, *largest, panel.x + 12, panel.x + panel_width - 12);
  const LogAxis values = LogAxis::around(shown, panel.y + panel_height, panel.y);
  std::string svg = axes(panel, sizes, values);
  for (const Series& series : panel.series) svg += curve(series, sizes, values);
  return svg;
}

/// A baseline has no single iterations, and what runs beside it neither.
std::string legend(bool has_baseline, double y) {
  std::string svg;
  double x = left_margin;
  for (const auto& [style, of_baseline, of] : forms) {
    if (of_baseline && !has_baseline) continue;
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"{3}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{4}\"/>\n",
        x, y - 4, x + 32, style.colour, style.dashes);
    svg += marker(x + 16, y - 4, style) + text(x + 40, y, "start", "tick", style.label);
    x += of_baseline ? 200 : 136;
  }
  if (has_baseline) return svg;
  svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"32\" height=\"12\" fill=\"#555555\" fill-opacity=\"0.2\"/>\n", x,
                     y - 10);
  return svg + text(x + 40, y, "start", "tick", "median to 99th percentile of single iterations");
}

std::string title_of(const Subject& subject) {
  std::string title(name(subject.type));
  if (subject.op) title += fmt::format(", {}", name(*subject.op));
  if (subject.root >= 0) title += fmt::format(", root {}", subject.root);
  return title;
}

/// Rows of one subject; those of several cycles are drawn as one.
std::vector<std::vector<Row>> by_subject(const std::vector<Row>& rows) {
  std::vector<std::vector<Row>> groups;
  for (const Row& row : rows) {
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.front().subject == row.subject; });
    if (group == groups.end()) group = groups.insert(groups.end(), std::vector<Row>{});
    group->push_back(row);
  }
  return groups;
}

std::string heading(const Report& report) {
  std::string heading =
      fmt::format("strait perf {}, {}", name(report.options.collective), counted(report.ranks.size(), "rank"));
  if (report.baseline) heading += " beside " + report.baseline->name();
  if (const auto& on = report.predicted_on; !on.machine.empty())
    heading += " of " + on.machine + ": prediction, not measured";
  return heading;
}

std::string cell(const std::string& content) { return "<td>" + content + "</td>"; }

std::string html_row(const Row& row, bool has_baseline) {
  std::string html = fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", row.bytes, row.count, title_of(row.subject));
  for (const Form& form : forms) {
    if (form.of_baseline && !has_baseline) continue;
    const Measurement* m = form.of(row);
    if (m == nullptr) {
      html += "<td colspan=\"6\">no such form</td>";
      continue;
    }
    for (const double value : {m->time_us, m->algorithm_gbps, m->bus_gbps}) html += cell(fitted(value, 9));
    for (const double value : {m->p50_us, m->p99_us}) html += cell(value > 0 ? fitted(value, 9) : "");
    html += cell(m->wrong ? std::to_string(*m->wrong) : "not checked");
  }
  return html + "</tr>\n";
}

}  // namespace

std::string plot_svg(const Report& report) {
  const auto groups = by_subject(report.rows);
  const double height = heading_height + row_height * static_cast<double>(groups.size());
  std::string svg = figure_begin(figure_width, height, heading(report));
  const std::string& caveat = report.predicted_on.caveat;
  svg += text(left_margin, 32, "start", "title", heading(report)) + text(left_margin, 49, "start", "tick", caveat);
  svg += legend(report.baseline.has_value(), caveat.empty() ? 58 : 68);
  double y = heading_height + 28;
  for (const auto& rows : groups) {
    const std::string subject = title_of(rows.front().subject);
    svg += draw({subject + ": bus bandwidth (GB/s)", series_of(rows, bandwidth_point), left_margin, y});
    svg += draw({subject + ": latency (µs)", series_of(rows, latency_point), left_margin + panel_width + gap, y});
    y += row_height;
  }
  return svg + "</svg>\n";
}

std::string plot_html(const Report& report) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>body{{font-family:"
      "Helvetica,Arial,sans-serif;margin:24px;color:#222}}svg{{max-width:100%;height:auto}}table{{border-collapse:"
      "collapse;font-size:13px}}td,th{{padding:3px 10px;text-align:right;border-bottom:1px solid #e3e3e3}}</style>"
      "</head>\n<body>\n{1}<table>\n<tr><th colspan=\"3\"></th>",
      xml_text(heading(report)), plot_svg(report));
  const bool has_baseline = report.baseline.has_value();
  std::string columns;
  for (const Form& form : forms) {
    if (form.of_baseline && !has_baseline) continue;
    html += fmt::format("<th colspan=\"6\">{}</th>", form.style.label);
    columns += "<th>µs</th><th>algbw GB/s</th><th>busbw GB/s</th><th>p50 µs</th><th>p99 µs</th><th>wrong</th>";
  }
  html += "</tr>\n<tr><th>bytes</th><th>count</th><th>type</th>" + columns + "</tr>\n";
  for (const Row& row : report.rows) html += html_row(row, has_baseline);
  return html + "</table>\n</body></html>\n";
}

}  // namespace strait::perf
