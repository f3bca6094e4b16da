#include "perf/plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strait::perf {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// Returns a report of several sizes of one type; size 0 has no bandwidth.
Report example(bool with_in_place) {
  Report report;
  report.ranks = {{0, 1, "a"}, {1, 2, "a"}};
  for (const std::size_t bytes : {0, 8, 16, 32, 64}) {
    const double time_us = 2 + static_cast<double>(bytes) / 10;
    const double gbps = static_cast<double>(bytes) / time_us * 1e-3;
    const Measurement m{time_us, time_us, gbps, gbps, time_us, 2 * time_us, 0};
    Row row{bytes, bytes / 4, {DataType::float32, ReduceOp::sum, -1}, m, std::nullopt};
    if (with_in_place) row.in_place = m;
    report.rows.push_back(row);
  }
  return report;
}

TEST(Plot, DrawsALineAndABandForEachFormInBothPanels) {
  const std::string svg = plot_svg(example(true));
  EXPECT_EQ(occurrences(svg, "<polyline"), 4U);
  EXPECT_EQ(occurrences(svg, "<polygon"), 4U);
  EXPECT_EQ(occurrences(svg, "<circle"), 1 + 2 * 4U) << "the legend, and four sizes in two panels";
  EXPECT_EQ(occurrences(plot_svg(example(false)), "<polyline"), 2U);
}

TEST(Plot, ABaselineHasLinesAndColumnsOfItsOwn) {
  Report report = example(true);
  report.baseline = BaselineInfo{"/lib/libnccl.so.2", 22809};
  for (Row& row : report.rows) {
    for (Measurement* m : {&row.out_of_place, &*row.in_place}) m->p50_us = m->p99_us = 0;  // as with a baseline
    row.baseline_out_of_place = row.out_of_place;
    row.baseline_out_of_place->time_us *= 2;
    row.baseline_out_of_place->bus_gbps /= 2;
    row.baseline_in_place = row.baseline_out_of_place;
  }
  const std::string html = plot_html(report);
  EXPECT_EQ(occurrences(html, "<polyline"), 8U) << "two forms of two libraries in two panels";
  EXPECT_EQ(occurrences(html, "<polygon"), 0U);
  EXPECT_THAT(html, HasSubstr("beside NCCL 2.28.9"));
  EXPECT_EQ(occurrences(html, "colspan=\"6\""), 4U);
  EXPECT_THAT(html, Not(HasSubstr("99th percentile"))) << "not measured beside a baseline";
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  report.rows.back().baseline_in_place = std::nullopt;
  EXPECT_EQ(occurrences(plot_html(report), "no such form"), 1U);
}

TEST(Plot, LeavesOutWhatALogarithmicAxisCannotShow) {
  const std::string svg = plot_svg(example(true));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  Report nothing = example(true);
  nothing.rows.resize(1);
  EXPECT_THAT(plot_svg(nothing), HasSubstr("nothing to draw"));
}

TEST(Plot, IsSelfContained) {
  const std::string html = plot_html(example(true));
  EXPECT_EQ(occurrences(html, "http"), 1U) << "the name space of SVG only";
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_EQ(occurrences(html, "<svg"), 1U);
  EXPECT_EQ(occurrences(html, "<tr>"), 2 + 5U) << "two rows of headings, five sizes";
}

TEST(Plot, EachTypeHasItsOwnRow) {
  Report report = example(true);
  for (Row row : example(true).rows) {
    row.subject.type = DataType::float64;
    report.rows.push_back(row);
  }
  const std::string svg = plot_svg(report);
  EXPECT_THAT(svg, HasSubstr("float32, sum: bus bandwidth"));
  EXPECT_THAT(svg, HasSubstr("float64, sum: latency"));
  EXPECT_EQ(occurrences(svg, "<polyline"), 8U);
}

}  // namespace
}  // namespace strait::perf
