// What `strait perf --simulate` reports.
#include "sim/perf_rows.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "perf/options.hpp"
#include "perf/plot.hpp"

namespace strait::sim {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(SimulatedPerf, HasPerfsRowsAndSaysThatTheyArePredicted) {
  perf::Options options;
  options.simulate = "10x-rtx3090";
  options.min_bytes = 1 << 20;
  options.max_bytes = 4 << 20;
  options.step_factor = 2;
  const auto report = predicted_report(options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->rows.size(), 3U);
  EXPECT_EQ(report->ranks.size(), 10U);
  EXPECT_EQ(report->predicted_on.machine, "10x RTX 3090, no bridges");
  for (const perf::Row& row : report->rows) {
    EXPECT_FALSE(row.out_of_place.wrong) << "nothing was checked";
    EXPECT_NEAR(row.out_of_place.bus_gbps, 1.8 * row.out_of_place.algorithm_gbps, 1e-9);
  }
  const Json json = Json::parse(perf::to_json(*report));
  EXPECT_EQ(json["prediction"]["machine"], "10x RTX 3090, no bridges");
  EXPECT_EQ(json["prediction"]["caveat"], "");
  options.threads = 3;
  EXPECT_EQ(predicted_report(options)->ranks.size(), 3U);
  options.threads = 11;
  EXPECT_FALSE(predicted_report(options));
}

TEST(SimulatedPerf, SaysThatGpuRanksOfSeveralHostsAreNotPredicted) {
  perf::Options options;
  options.simulate = "2-hosts-10x-rtx3090";
  const auto report = predicted_report(options);
  ASSERT_TRUE(report) << report.error().message;
  const std::string caveat = report->predicted_on.caveat;
  EXPECT_THAT(caveat, HasSubstr("GPU ranks of several hosts are not predicted"));
  EXPECT_EQ(Json::parse(perf::to_json(*report))["prediction"]["caveat"], caveat);
  EXPECT_THAT(perf::plot_svg(*report), HasSubstr(caveat));
}

TEST(SimulatedPerf, HeedsExtraElementsAndTheWireFormatOfTheEnvironment) {
  perf::Options options;
  options.simulate = "4x-h200";
  options.types = {DataType::float32, DataType::int32};
  options.extra_elements = 3;
  const auto exact = predicted_report(options);
  setenv("STRAIT_WIRE", "int8", 1);
  const auto wired = predicted_report(options);
  options.wire = WireFormat::off;
  const auto off = predicted_report(options);
  unsetenv("STRAIT_WIRE");
  ASSERT_TRUE(exact && wired && off);
  EXPECT_EQ(exact->rows[0].count, (8U << 20) + 3);
  EXPECT_EQ(exact->rows[0].bytes, (32U << 20) + 12);
  EXPECT_EQ(wired->transport.wire, WireFormat::int8);
  EXPECT_NE(wired->rows[0].out_of_place.time_us, exact->rows[0].out_of_place.time_us);
  EXPECT_EQ(wired->rows[1].out_of_place.time_us, exact->rows[1].out_of_place.time_us) << "int32 cannot have it";
  EXPECT_EQ(off->rows[0].out_of_place.time_us, exact->rows[0].out_of_place.time_us);
}

}  // namespace
}  // namespace strait::sim
