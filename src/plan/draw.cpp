#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/xml_text.hpp"
#include "plan/print.hpp"
#include "plan/schedule.hpp"

namespace strait {
namespace {

constexpr int box_width = 200;
constexpr int box_height = 22;
constexpr int row_height = 48;
constexpr int column_gap = 28;
constexpr int top = 64;
constexpr std::size_t most_columns = 24;  // one and a half screens, with legible letters

std::string_view colour(std::uint32_t rank) {
  constexpr std::array<std::string_view, 8> colours{"#2f6db3", "#c2502e", "#3a8a4d", "#8a56a8",
                                                    "#b08412", "#2a8c8c", "#b5446e", "#5f6b7a"};
  return colours[rank % colours.size()];
}

const Step& step_of(const Plan& plan, const Schedule::Placed& placed) {
  return plan[placed.rank].lanes[placed.lane].steps[placed.step];
}

std::string text_of(const Plan& plan, const Schedule::Placed& placed) {
  return step_text(plan[placed.rank], step_of(plan, placed));
}

/// Returns the text that fits into a box: the data movement, without waits and signals.
std::string short_text(const Plan& plan, const Schedule::Placed& placed) {
  constexpr std::size_t most = 30;
  Step step = step_of(plan, placed);
  const bool moves_data = !step.sources.empty();
  if (moves_data) {
    step.waits.clear();
    step.signals.clear();
    step.final = false;
  }
  std::string text = step_text(plan[placed.rank], step);
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

/// Returns how many lanes of each rank are drawn: all if there is room, otherwise the first ones.
std::size_t drawn_lanes(const Plan& plan) {
  const auto columns = [&](std::size_t lanes) {
    std::size_t all = 0;
    for (const RankPlan& mine : plan) all += std::clamp<std::size_t>(mine.lanes.size(), 1, lanes);
    return all;
  };
  std::size_t lanes = 1;
  for (const RankPlan& mine : plan) lanes = std::max(lanes, mine.lanes.size());
  while (lanes > 1 && columns(lanes) > most_columns) --lanes;
  return lanes;
}

/// Returns the positions at which the columns of the ranks begin, followed by the position at which the last one ends.
std::vector<int> column_positions(const Plan& plan, std::size_t lanes) {
  std::vector<int> positions{column_gap};
  for (const RankPlan& mine : plan)
    positions.push_back(positions.back() +
                        static_cast<int>(std::clamp<std::size_t>(mine.lanes.size(), 1, lanes)) * box_width +
                        column_gap);
  return positions;
}

class SvgDrawing {
 public:
  explicit SvgDrawing(const Plan& plan)
      : plan_(plan),
        lanes_(drawn_lanes(plan)),
        schedule_(schedule_of(plan)),
        columns_(column_positions(plan, lanes_)) {}

  std::string draw() {
    const int width = columns_.back();
    const int height = top + static_cast<int>(schedule_.rows) * row_height + 16;
    svg_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
         << "\" viewBox=\"0 0 " << width << " " << height << "\" font-family=\"monospace\" font-size=\"10\">\n"
         << "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
            "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"context-stroke\"/></marker></defs>\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    headings(height);
    for (const Schedule::Arrow& arrow : schedule_.arrows) draw_arrow(arrow);
    for (const Schedule::Placed& step : schedule_.steps)
      if (is_drawn(step)) draw_peers(step);
    for (const Schedule::Placed& step : schedule_.steps)
      if (is_drawn(step)) draw_box(step);
    svg_ << "</svg>\n";
    return svg_.str();
  }

 private:
  bool is_drawn(const Schedule::Placed& step) const { return step.lane < lanes_; }
  int x_of(const Schedule::Placed& step) const { return columns_[step.rank] + static_cast<int>(step.lane) * box_width; }
  static int y_of(const Schedule::Placed& step) { return top + static_cast<int>(step.row) * row_height; }

  void headings(int height) {
    const RankPlan& first = plan_.front();
    svg_ << "<text x=\"" << column_gap << "\" y=\"20\" font-size=\"14\" font-weight=\"bold\">"
         << xml_text(std::string(name(first.collective)) + ", " + first.algorithm + ", " + std::to_string(first.ranks) +
                     " ranks, one slice" + left_out())
         << "</text>\n";
    for (const RankPlan& mine : plan_) {
      const int x = columns_[mine.rank];
      svg_ << "<rect x=\"" << x - 8 << "\" y=\"32\" width=\"" << columns_[mine.rank + 1] - x - column_gap + 16
           << "\" height=\"" << height - 40 << "\" fill=\"" << colour(mine.rank) << "\" opacity=\"0.07\"/>\n"
           << "<text x=\"" << x << "\" y=\"48\" font-size=\"12\" font-weight=\"bold\" fill=\"" << colour(mine.rank)
           << "\">rank " << mine.rank << "</text>\n";
    }
  }

  std::string left_out() const {
    std::size_t most = 0;
    for (const RankPlan& mine : plan_) most = std::max(most, mine.lanes.size());
    if (most <= lanes_) return "";
    return "; of " + std::to_string(most) + " lanes that ranks have, the first " +
           (lanes_ == 1 ? "one" : std::to_string(lanes_)) + " of each";
  }

  void draw_arrow(const Schedule::Arrow& arrow) {
    const Schedule::Placed& from = schedule_.steps[arrow.from];
    const Schedule::Placed& to = schedule_.steps[arrow.to];
    if (!is_drawn(from) || !is_drawn(to)) return;
    svg_ << "<line x1=\"" << x_of(from) + box_width / 2 << "\" y1=\"" << y_of(from) + box_height << "\" x2=\""
         << x_of(to) + box_width / 2 << "\" y2=\"" << y_of(to) << "\" stroke=\"" << colour(from.rank) << "\" "
         << (arrow.is_signal ? "stroke-dasharray=\"2 3\" opacity=\"0.5\" " : "")
         << "stroke-width=\"1.2\" marker-end=\"url(#tip)\"/>\n";
  }

  /// Draws direct reads and writes of peers' memory: a line along the row between the two ranks' columns.
  void draw_peers(const Schedule::Placed& step) {
    const auto line = [&](const Operand& operand, bool reads) {
      if (operand.kind != Operand::Kind::peer) return;
      const int y = y_of(step) + box_height / 2;
      const int here = x_of(step) + (operand.peer < step.rank ? 4 : box_width - 12);
      const int there = operand.peer < step.rank ? columns_[operand.peer + 1] - column_gap : columns_[operand.peer];
      svg_ << "<line x1=\"" << (reads ? there : here) << "\" y1=\"" << y << "\" x2=\"" << (reads ? here : there)
           << "\" y2=\"" << y << "\" stroke=\"" << colour(reads ? operand.peer : step.rank)
           << "\" stroke-dasharray=\"6 3\" marker-end=\"url(#tip)\"/>\n";
    };
    for (const Operand& source : step_of(plan_, step).sources) line(source, true);
    for (const Operand& destination : step_of(plan_, step).destinations) line(destination, false);
  }

  void draw_box(const Schedule::Placed& step) {
    const bool reduces = step_of(plan_, step).reduces;
    svg_ << "<g><title>" << xml_text(text_of(plan_, step)) << "</title><rect x=\"" << x_of(step) << "\" y=\""
         << y_of(step) << "\" width=\"" << box_width - 8 << "\" height=\"" << box_height << "\" rx=\"4\" fill=\""
         << (reduces ? "#fff3d6" : "#ffffff") << "\" stroke=\"" << colour(step.rank) << "\"/><text x=\""
         << x_of(step) + 5 << "\" y=\"" << y_of(step) + 14 << "\">" << xml_text(short_text(plan_, step))
         << "</text></g>\n";
  }

  const Plan& plan_;
  std::size_t lanes_;  ///< number of drawn lanes of each rank
  Schedule schedule_;
  std::vector<int> columns_;
  std::ostringstream svg_;
};

}  // namespace

std::string to_svg(const Plan& plan) { return SvgDrawing(plan).draw(); }

std::string to_dot(const Plan& plan) {
  const Schedule schedule = schedule_of(plan);
  std::ostringstream dot;
  dot << "digraph plan {\n  node [shape=box, fontname=monospace, fontsize=9];\n";
  std::size_t id = 0;
  for (const RankPlan& mine : plan) {
    dot << "  subgraph cluster_" << mine.rank << " {\n    label=\"rank " << mine.rank << "\";\n";
    for (; id < schedule.steps.size() && schedule.steps[id].rank == mine.rank; ++id) {
      dot << "    s" << id << " [label=\"" << text_of(plan, schedule.steps[id]) << "\"];\n";
      if (schedule.steps[id].step > 0) dot << "    s" << id - 1 << " -> s" << id << " [color=gray];\n";
    }
    dot << "  }\n";
  }
  for (const Schedule::Arrow& arrow : schedule.arrows)
    dot << "  s" << arrow.from << " -> s" << arrow.to << (arrow.is_signal ? " [style=dotted]" : "") << ";\n";
  dot << "}\n";
  return dot.str();
}

std::string to_chrome_trace(const Plan& plan, const ClockResult& result) {
  nlohmann::json events = nlohmann::json::array();
  for (const RankPlan& mine : plan)
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", mine.rank},
                      {"args", {{"name", "rank " + std::to_string(mine.rank)}}}});
  for (const TimedStep& timed : result.timeline) {
    const Step& step = plan[timed.rank].lanes[timed.lane].steps[timed.step];
    events.push_back({{"name", step_text(plan[timed.rank], step)},
                      {"cat", step.reduces           ? "reduce"
                              : step.sources.empty() ? "signal"
                                                     : "copy"},
                      {"ph", "X"},
                      {"ts", timed.begin_us},
                      {"dur", timed.end_us - timed.begin_us},
                      {"pid", timed.rank},
                      {"tid", timed.lane},
                      {"args", {{"slice", timed.slice}, {"step", timed.step}}}});
  }
  return nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ns"}}.dump();
}

}  // namespace strait
