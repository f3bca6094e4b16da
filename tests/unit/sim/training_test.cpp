#include "sim/training.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <regex>

namespace strait::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Returns options with 300 ms of computation, 200 of them backward, and four buckets: gradients are ready at 150, 200,
/// 250 and 300 ms.
TrainingOptions example() {
  return {.parameters = 1e9,
          .bytes_per_parameter = 2,
          .compute_ms = 300,
          .backward_share = 2.0 / 3,
          .samples = 8,
          .buckets = 4};
}

TEST(Training, SumsHideBehindTheBackwardPass) {
  EXPECT_DOUBLE_EQ(step_ms(example(), 0), 300);
  EXPECT_DOUBLE_EQ(step_ms(example(), 10), 310) << "only the last one is exposed";
  EXPECT_DOUBLE_EQ(step_ms(example(), 50), 350) << "just in time";
  EXPECT_DOUBLE_EQ(step_ms(example(), 100), 150 + 4 * 100) << "one after the other from the first on";
}

TEST(Training, OneBucketHidesNothing) {
  TrainingOptions options = example();
  options.buckets = 1;
  EXPECT_DOUBLE_EQ(step_ms(options, 100), 400);
  options.buckets = 4;
  options.backward_share = 0;
  EXPECT_DOUBLE_EQ(step_ms(options, 100), 700);
}

TEST(Training, BucketsAreWholeElements) {
  EXPECT_EQ(bucket_bytes(example(), DataType::float32), 500'000'000U);
  TrainingOptions options = example();
  options.parameters = 5;
  options.bytes_per_parameter = 2;
  EXPECT_EQ(bucket_bytes(options, DataType::float32), 4U) << "2.5 bytes";
}

TEST(Training, EfficiencyIsThatOfTheFormula) {
  const auto curves = train(example(), {"10x-rtx3090", 0, false}, DataType::float32, {2, 10}, {"ring"});
  ASSERT_TRUE(curves) << curves.error().message;
  ASSERT_EQ(curves->size(), 2U);
  for (const TrainingCurve& curve : *curves) {
    ASSERT_EQ(curve.points.size(), 3U);
    EXPECT_EQ(curve.points[0].ranks, 1U);
    EXPECT_DOUBLE_EQ(curve.points[0].efficiency, 1);
    EXPECT_NEAR(curve.points[0].samples_per_second, 8 / 0.3, 1e-9);
    for (const TrainingPoint& p : curve.points) {
      EXPECT_NEAR(p.efficiency, 300 / p.step_ms, 1e-12);
      EXPECT_NEAR(p.samples_per_second, p.ranks * 8 / p.step_ms * 1e3, 1e-9);
      EXPECT_NEAR(p.exposed_ms, p.step_ms - 300, 1e-9);
    }
  }
  // 2 GB of gradients: five GPUs write theirs through 3 GB/s in 3.33 s; a ring takes 1.8 times as long.
  EXPECT_NEAR((*curves)[0].points.back().sums_ms, 5 * 2e9 / 3e9 * 1e3, 100);
  EXPECT_NEAR((*curves)[1].points.back().sums_ms, 1.8 * 5 * 2e9 / 3e9 * 1e3, 400);
}

TEST(Training, IsDrawnSelfContained) {
  const auto curves = train(example(), {"10x-rtx3090", 0, false}, DataType::float32, {2, 4, 10}, {"ring"});
  ASSERT_TRUE(curves);
  const std::string svg = plot_svg(example(), {"ten & more", "of which a caveat speaks"}, *curves);
  EXPECT_THAT(svg, AllOf(HasSubstr("Samples per second"), HasSubstr("prediction, not measured"),
                         HasSubstr("ten &amp; more"), HasSubstr("of which a caveat speaks"),
                         HasSubstr(fmt::format("{:.4g}/s", curves->front().points.back().samples_per_second))));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), Not(HasSubstr("<script"))));
  const std::regex circle("<circle cx=\"([0-9.]+)\"");
  EXPECT_EQ(std::distance(std::sregex_iterator(svg.begin(), svg.end(), circle), {}), 2 * 2 + 2 * 2 * 4)
      << "legend, then ranks 1, 2, 4 and 10 of both curves in both panels";
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Training, NumbersWithoutSenseAreNamed) {
  const auto message = [](auto change) {
    TrainingOptions options = example();
    change(options);
    const auto status = validate(options);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(message([](TrainingOptions&) {}), "");
  EXPECT_THAT(message([](TrainingOptions& w) { w.parameters = 0; }), HasSubstr("--train needs --parameters"));
  EXPECT_THAT(message([](TrainingOptions& w) { w.compute_ms = -1; }), HasSubstr("--compute-ms, of a step"));
  EXPECT_THAT(message([](TrainingOptions& w) { w.backward_share = 1.5; }), HasSubstr("--backward-share"));
  EXPECT_THAT(message([](TrainingOptions& w) { w.parameters = 1e300; }), HasSubstr("1000 terabytes"));
  EXPECT_THAT(message([](TrainingOptions& w) { w.buckets = 0; }), HasSubstr("--buckets"));
  EXPECT_FALSE(train(example(), {"10x-rtx3090", 0, false}, DataType::float32, {11}, {}));
}

}  // namespace
}  // namespace strait::sim
