#include "perf/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "perf/report.hpp"

namespace strait::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Measurement measured(double time_us, double bus_gbps, std::optional<std::int64_t> wrong) {
  return {.time_us = time_us,
          .cpu_time_us = time_us / 2,
          .algorithm_gbps = bus_gbps / 1.5,
          .bus_gbps = bus_gbps,
          .p50_us = time_us * 0.9,
          .p99_us = time_us * 2,
          .wrong = wrong};
}

Row example() {
  return {1024, 256, {DataType::float32, ReduceOp::sum, -1}, measured(10, 1.5, 0), measured(20, 0.75, 3)};
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Table, RowHasTheColumnsOfNcclTestsThenPercentiles) {
  EXPECT_THAT(words(table_row(example(), false)),
              ElementsAre("1024", "256", "float", "sum", "-1", "10.00", "1.00", "1.50", "0", "20.00", "0.50", "0.75",
                          "3", "9.00", "20.00", "18.00", "40.00"));
}

TEST(Table, BesideABaselineItsTimesAndRatiosAreShown) {
  Row row = example();
  row.baseline_out_of_place = measured(15, 1, 2);
  row.baseline_in_place = measured(10, 1.5, std::nullopt);
  EXPECT_THAT(words(table_row(row, false)), ElementsAre("1024", "256", "float", "sum", "-1", "10.00", "15.00", "1.50",
                                                        "0", "2", "20.00", "10.00", "0.50", "3", "N/A"));
  EXPECT_DOUBLE_EQ(*summarise(std::vector{row}).mean_ratio, std::sqrt(1.5 * 0.5));
  EXPECT_EQ(summarise(std::vector{row}).wrong, 3) << "the baseline's wrong elements are not Strait's";
  EXPECT_FALSE(summarise(std::vector{example()}).mean_ratio);
  const std::string text = header(Options{}, std::vector<RankInfo>{{0, 42, "host"}}, 1, {"cuda_p2p", ""},
                                  BaselineInfo{"/lib/libnccl.so.2", 22809});
  EXPECT_THAT(text, HasSubstr("# Baseline: NCCL 2.28.9 of /lib/libnccl.so.2, in 5 turns"));
  const std::string heads = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_EQ(heads.size(), table_row(row, false).size()) << heads;
}

TEST(Table, FloorsStandBehindTheRest) {
  const HostLinkRates links{40, 50, 37};
  for (const bool compared : {false, true}) {
    Row row = example();
    row.floor = Floor{8, 9, "up"};
    if (compared) row.baseline_out_of_place = measured(15, 1, 2);
    const auto cells = words(table_row(row, false, true));
    EXPECT_EQ(cells[cells.size() - 2], "8.00");
    EXPECT_EQ(cells.back(), "1.25") << "times the floor";
    const auto baseline = compared ? std::optional(BaselineInfo{"/lib/libnccl.so.2", 22809}) : std::nullopt;
    const std::string text =
        header(Options{}, std::vector<RankInfo>{{0, 42, "host"}}, 1, {"host_staged", ""}, baseline, links);
    EXPECT_THAT(text, HasSubstr("rank's: 40.00 GB/s up, 50.00 down, 37.00 each while both are busy\n"));
    const std::string heads = text.substr(text.rfind('\n', text.size() - 2) + 1);
    EXPECT_EQ(heads.size(), table_row(row, false, true).size()) << heads;
    row.floor.reset();
    EXPECT_EQ(heads.size(), table_row(row, false, true).size());
  }
}

TEST(Table, CpuTimeReplacesTheTime) { EXPECT_EQ(words(table_row(example(), true))[5], "5.00"); }

TEST(Table, WhatIsNotThereIsNotAvailable) {
  Row row = example();
  row.in_place.reset();
  row.subject.op.reset();
  row.out_of_place.wrong.reset();
  EXPECT_THAT(words(table_row(row, false)),
              ElementsAre("1024", "256", "float", "none", "-1", "10.00", "1.00", "1.50", "N/A", "N/A", "N/A", "N/A",
                          "N/A", "9.00", "20.00", "N/A", "N/A"));
}

TEST(Table, HeaderLinesUpWithTheRows) {
  const std::vector<RankInfo> ranks = {{0, 42, "host"}};
  const std::string text = header(Options{}, ranks, 1, {"tcp", "shm: no socket"});
  EXPECT_THAT(text, HasSubstr("# Transport: tcp, because shm: no socket\n"));
  EXPECT_THAT(text, HasSubstr("Rank  0 Group  0 Pid     42 on       host"));
  EXPECT_THAT(text, HasSubstr("host host memory\n"));
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_EQ(last.size(), table_row(example(), false).size());
}

TEST(Table, HeaderTellsTheWireFormatAndWhoAskedForIt) {
  const std::vector<RankInfo> ranks(2);
  const auto text = [&](const Options& o, WireFormat wire) { return header(o, ranks, 2, {"shm", "", wire}); };
  Options o;
  EXPECT_THAT(text(o, WireFormat::off), Not(HasSubstr("Wire")));
  EXPECT_THAT(text(o, WireFormat::int8),
              HasSubstr("\n# Wire: int8 (STRAIT_WIRE) at any size: STRAIT_WIRE_BYTES does not count here\n"));
  EXPECT_THAT(prediction_header(o, ranks, {"machine", ""}, WireFormat::int4),
              HasSubstr("\n# Wire: int4 (STRAIT_WIRE) "));
  EXPECT_THAT(header(o, std::vector<RankInfo>(1), 1, {"loopback", "", WireFormat::int8}), Not(HasSubstr("Wire")))
      << "one rank sends nothing";
  o.types.push_back(DataType::int32);
  EXPECT_THAT(text(o, WireFormat::int8), HasSubstr("; types and redops that cannot have it are exact\n"));
  o.types = {DataType::int32};
  EXPECT_THAT(text(o, WireFormat::int8), Not(HasSubstr("Wire")));
  o = {};
  o.wire = WireFormat::fp8;
  EXPECT_THAT(text(o, WireFormat::fp8), HasSubstr("\n# Wire: fp8 (--wire) "));
}

TEST(Table, OneIsNotMany) {
  EXPECT_EQ(counted(1, "byte"), "1 byte");
  EXPECT_EQ(counted(0, "byte"), "0 bytes");
  Options o;
  o.iterations = 1;
  o.graph_launches = 2;
  o.turns = 1;
  const auto text = header(o, std::vector<RankInfo>(1), 1, {"loopback", ""}, BaselineInfo{"/lib/libnccl.so.2", 22809});
  EXPECT_THAT(text, HasSubstr("# CUDA graph of 1 iteration, launched 2 times\n"));
  EXPECT_THAT(text, HasSubstr(", in 1 turn; "));
}

TEST(Table, HeaderNamesTheGpuOfARank) {
  const std::vector<RankInfo> ranks = {{3, 42, "host", 1, "0000:41:00.0", "Some GPU"}};
  EXPECT_THAT(header(Options{}, ranks, 1, {"shm", ""}),
              HasSubstr("Rank  3 Group  0 Pid     42 on       host device  1 [0000:41:00.0] Some GPU\n"));
}

TEST(Table, FooterIsThatOfNcclTests) {
  const std::vector<Row> rows = {example()};
  const std::string text = footer(Options{}, summarise(rows));
  EXPECT_THAT(text, HasSubstr("# Out of bounds values : 3 FAILED\n"));
  EXPECT_THAT(text, HasSubstr("# Avg bus bandwidth    : 1.125 \n"));
  EXPECT_THAT(footer(Options{}, {2, 0}), HasSubstr("# Out of bounds values : 0 OK\n"));
}

TEST(Fitted, GivesUpDecimalsBeforeDigits) {
  EXPECT_EQ(fitted(1.239, 7), "1.24");
  EXPECT_EQ(fitted(12345.678, 7), "12345.7");
  EXPECT_EQ(fitted(1234567.8, 7), "1234568");
  EXPECT_EQ(fitted(123456789, 7), "1.2e+08");
}

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  EXPECT_DOUBLE_EQ(percentile(samples, 50), 50);
  EXPECT_DOUBLE_EQ(percentile(samples, 99), 99);
  std::vector<double> few = {3, 1, 2};
  EXPECT_DOUBLE_EQ(percentile(few, 99), 3);
  EXPECT_DOUBLE_EQ(percentile(few, 50), 2);
}

TEST(Json, HoldsSettingsAndResultsButNoSecret) {
  setenv("STRAIT_KEY", "secret0123", 1);
  setenv("STRAIT_SIMD", "portable", 1);
  setenv("NCCL_MAX_CTAS", "4", 1);
  const std::vector<RankInfo> ranks = {{0, 42, "host"}, {1, 43, "host", 5, "0000:41:00.0", "Some GPU"}};
  const std::string text = to_json({Options{}, 100, ranks, {example()}});
  unsetenv("STRAIT_KEY");
  unsetenv("STRAIT_SIMD");
  unsetenv("NCCL_MAX_CTAS");
  EXPECT_THAT(text, Not(HasSubstr("secret0123")));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["provenance"]["environment"]["STRAIT_SIMD"], "portable");
  EXPECT_EQ(json["provenance"]["environment"]["NCCL_MAX_CTAS"], "4");
  EXPECT_FALSE(json["provenance"]["environment"].contains("PATH"));
  EXPECT_EQ(json["results"][0]["in_place"]["wrong"], 3);
  EXPECT_EQ(json["results"][0]["type"], "float32");
  EXPECT_EQ(json["results"][0]["out_of_place"]["p99_us"], 20);
  EXPECT_EQ(json["summary"]["wrong"], 3);
  EXPECT_EQ(json["ranks"][0]["pid"], 42);
  EXPECT_FALSE(json["ranks"][0].contains("gpu"));
  EXPECT_EQ(json["ranks"][1]["gpu"]["device"], 5);
  EXPECT_EQ(json["ranks"][1]["gpu"]["name"], "Some GPU");
}

}  // namespace
}  // namespace strait::perf
