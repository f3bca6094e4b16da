#include "sim/sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/panels.hpp"

namespace strait::sim {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

SweepOptions ten_gpus() {
  return {.machine = {"10x-rtx3090", 0, false},
          .operation = {},
          .sizes_bytes = {1 << 10, 1 << 20, 64 << 20},
          .ranks = {},
          .algorithm = "",
          .against = {"ring"}};
}

TEST(Ranks, AreRangesOrLists) {
  EXPECT_THAT(*parse_ranks("2..5"), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(*parse_ranks("8,2,4,4"), ElementsAre(2, 4, 8));
  EXPECT_THAT(*parse_ranks("16"), ElementsAre(16));
  for (const char* bad : {"", "0", "1", "2..", "..4", "5..2", "two", "2,,4", "2-4", "-3", "99999999999"})
    EXPECT_FALSE(parse_ranks(bad)) << bad;
  EXPECT_TRUE(parse_ranks("1024"));
  EXPECT_THAT(parse_ranks("1025").error().message, HasSubstr("from 2 to 1024"));
  EXPECT_THAT(default_ranks(4), ElementsAre(2, 3, 4));
  EXPECT_THAT(default_ranks(20), ElementsAre(2, 4, 8, 16, 20));
  EXPECT_THAT(default_ranks(512), ElementsAre(2, 4, 8, 16, 32, 64));
  EXPECT_THAT(default_ranks(1), ElementsAre(2));
}

TEST(Sweep, GoesOverSizesOnAllAndOverRanksAtTheLargest) {
  const auto result = sweep(ten_gpus());
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->by_size.size(), 2U);
  EXPECT_EQ(result->by_size[0].points.size(), 3U);
  EXPECT_EQ(result->by_ranks[1].points.size(), 9U);
  for (const Point& point : result->by_size[1].points) EXPECT_EQ(point.plan.algorithm, "ring");
  for (const Point& point : result->by_ranks[0].points) EXPECT_EQ(point.bytes, std::size_t{64} << 20);
  EXPECT_EQ(result->by_ranks[0].points.back().rates.bus_gbps, result->by_size[0].points.back().rates.bus_gbps);
  EXPECT_THAT(result->by_size[1].name, HasSubstr("as NCCL does it"));
}

TEST(Sweep, EveryFormSaysThatItIsAPrediction) {
  const auto result = sweep(ten_gpus());
  ASSERT_TRUE(result);
  EXPECT_THAT(to_text(*result), AllOf(HasSubstr("PREDICTION"), HasSubstr("nothing here was measured")));
  EXPECT_THAT(plot_svg(*result), HasSubstr("prediction, not measured"));
  EXPECT_THAT(plot_html(*result), HasSubstr("PREDICTION"));
  const auto json = nlohmann::json::parse(to_json(*result));
  EXPECT_EQ(json["prediction"], true);
  EXPECT_EQ(json["by_ranks"][0]["points"].size(), 9U);
}

TEST(Sweep, SaysThatGpusOfSeveralHostsAreNotPredicted) {
  SweepOptions options = ten_gpus();
  options.machine.topology = "2-hosts-10x-rtx3090";
  options.sizes_bytes = {1 << 10};
  options.against = {};
  for (const std::uint32_t ranks : {10U, 20U}) {
    options.ranks = {ranks};
    const auto result = sweep(options);
    ASSERT_TRUE(result) << result.error().message;
    const auto warning = HasSubstr("not what they run");
    for (const std::string& form : {to_text(*result), to_json(*result), plot_svg(*result)})
      if (ranks == 20)
        EXPECT_THAT(form, warning);
      else
        EXPECT_THAT(form, Not(warning));
  }
}

TEST(Sweep, IsDrawnSelfContained) {
  const auto result = sweep(ten_gpus());
  ASSERT_TRUE(result);
  const std::string svg = plot_svg(*result);
  EXPECT_EQ(occurrences(svg, "<polyline"), 2 + 2 + 2U) << "legend, sizes, ranks";
  EXPECT_EQ(occurrences(svg, "http"), 1U) << "the name space of SVG only";
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), Not(HasSubstr("<script"))));
  EXPECT_THAT(svg, AllOf(HasSubstr("shared PCIe"), HasSubstr("-&gt;"), Not(HasSubstr(" -> "))));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Sweep, LabelsOfCurvesThatEndAtOnePlaceStandApart) {
  const std::vector<RanksCurve> curves{{{{2, 9}, {4, 5}}, "a"},
                                       {{{2, 9}, {4, 5}}, "b"},
                                       {{{2, 9}, {4, 5.1}}, "c"},
                                       {{{2, 9}, {4, 0}}, "d"},
                                       {{{2, 9}, {4, 0}}, "e"}};
  const std::string svg = ranks_panel("GB/s", curves, 0, 100);
  std::vector<double> places;
  for (const char* label : {"c", "a", "b", "d", "e"}) {
    const auto end = svg.find("class=\"tick\">" + std::string(label) + "</text>");
    ASSERT_NE(end, std::string::npos) << label;
    const auto y = svg.rfind("y=\"", end) + 3;
    places.push_back(std::stod(svg.substr(y)));
  }
  for (std::size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i] - places[i - 1], 18) << i;
  EXPECT_LE(places.back(), 100 + panel_height);
}

TEST(Sweep, DrawsASingleRankCountAndMachinesWithoutGpus) {
  SweepOptions options = ten_gpus();
  options.machine.topology = "laptop";
  options.ranks = {4};
  options.against.clear();
  const auto result = sweep(options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(plot_svg(*result), AllOf(HasSubstr("DRAM"), Not(HasSubstr("nan"))));
}

TEST(Sweep, BadOptionsAreErrors) {
  SweepOptions options = ten_gpus();
  options.ranks = {11};
  EXPECT_THAT(sweep(options).error().message, HasSubstr("more than the 10 GPUs"));
  options = ten_gpus();
  options.against = {"rnig"};
  EXPECT_THAT(sweep(options).error().message, HasSubstr("rnig"));
  options = ten_gpus();
  options.machine.topology = "vax";
  EXPECT_THAT(sweep(options).error().message, HasSubstr("vax"));
}

}  // namespace
}  // namespace strait::sim
