// Which sizes are predicted, and the messages for sizes that are too small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/options.hpp"
#include "sim/machine_source.hpp"
#include "sim/perf_rows.hpp"

namespace strait::sim {
namespace {

using testing::HasSubstr;

std::size_t count_of(Collective collective, std::size_t bytes, std::uint32_t ranks) {
  const auto operation = operation_of({.collective = collective}, bytes, ranks);
  return operation ? operation->count : 0;
}

TEST(Sizes, OneElementOfEachRankIsEnough) {
  EXPECT_EQ(count_of(Collective::all_reduce, 4, 8), 1U);
  EXPECT_EQ(count_of(Collective::broadcast, 7, 8), 1U);
  for (const Collective blocks : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                                  Collective::gather, Collective::scatter}) {
    EXPECT_EQ(count_of(blocks, 8, 2), 1U) << name(blocks);
    EXPECT_EQ(count_of(blocks, 7, 2), 0U) << name(blocks);
    EXPECT_EQ(count_of(blocks, 39, 2), 4U) << "blocks of 16 bytes, as strait perf has them";
  }
}

TEST(Sizes, WhatIsTooShortSaysWhatIsEnough) {
  const auto message = [](Collective collective, std::size_t bytes, std::uint32_t ranks) {
    return operation_of({.collective = collective}, bytes, ranks).error().message;
  };
  EXPECT_EQ(message(Collective::all_reduce, 3, 2), "3 bytes cannot hold an element of float32. Take 4 or more");
  EXPECT_EQ(message(Collective::all_gather, 1, 1000),
            "1 byte cannot hold an element of float32 for each of 1000 ranks. Take 4000 or more");
}

/// strait perf measures blocks whose lengths are multiples of 16 bytes, and its predictions are for the same calls.
TEST(Sizes, PredictedRowsHaveThoseOfStraitPerf) {
  perf::Options options;
  options.simulate = "laptop";
  options.threads = 2;
  options.collective = Collective::all_gather;
  options.min_bytes = options.max_bytes = 8;
  EXPECT_THAT(predicted_report(options).error().message, HasSubstr("for each of 2 ranks. Take 32 or more"));
  options.min_bytes = options.max_bytes = 32;
  EXPECT_TRUE(predicted_report(options));
}

}  // namespace
}  // namespace strait::sim
