#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/types.hpp"
#include "plan/print.hpp"
#include "plan/proof.hpp"
#include "plan/request.hpp"
#include "requests.hpp"

/// Proves every algorithm of the catalogue for every collective that it supports.
namespace strait {
namespace {

struct Case {
  const Algorithm* algorithm;
  Collective collective;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Algorithm& algorithm : catalogue())
    for (int c = 0; c < collective_count; ++c) {
      const auto collective = static_cast<Collective>(c);
      bool supported = false;
      for (const PlanRequest& request : test::requests(collective, 4)) supported |= algorithm.supports(request);
      if (supported) cases.push_back({&algorithm, collective});
    }
  return cases;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string text = std::string(info.param.algorithm->name) + "_" + std::string(name(info.param.collective));
  for (char& c : text)
    if (c == '-') c = '_';
  return text;
}

class CatalogueProof : public testing::TestWithParam<Case> {
 protected:
  /// Proves all variants of the requests for `ranks` ranks, and returns how many there were.
  int prove_all(std::uint32_t ranks, const std::vector<std::uint32_t>& depths, bool every_slice_count) {
    const Algorithm& algorithm = *GetParam().algorithm;
    int proven = 0;
    std::vector<std::pair<Plan, std::vector<bool>>> seen;
    for (const PlanRequest& request : test::requests(GetParam().collective, ranks)) {
      if (!algorithm.supports(request)) continue;
      for (const test::Placement placement : test::placements(request.collective)) {
        const auto [plan, in_place] = test::build(algorithm, request, placement);
        // Many algorithms do not depend on every part of the request.
        if (std::find(seen.begin(), seen.end(), std::pair(plan, in_place)) != seen.end()) continue;
        seen.emplace_back(plan, in_place);
        for (const std::uint32_t depth : depths) {
          std::vector<std::uint32_t> slice_counts{depth + 1};
          if (every_slice_count) slice_counts = {1, depth, depth + 1, 3 * depth};
          for (const std::uint32_t slices : slice_counts) {
            const Status proof = prove(plan, {.depth = depth,
                                              .slices = slices,
                                              .in_place = in_place,
                                              .numerics = algorithm.sums,
                                              .point_to_point = {}});
            EXPECT_TRUE(proof) << proof.error().message << "\n(depth " << depth << ", slices " << slices << ", "
                               << test::text(request, placement) << ")\n"
                               << (ranks <= 4 ? to_text(plan) : "");
            ++proven;
            if (!proof) return proven;
          }
        }
      }
    }
    return proven;
  }
};

TEST_P(CatalogueProof, HoldsForUpToEightRanks) {
  int proven = 0;
  for (std::uint32_t ranks = 1; ranks <= 8 && !HasFailure(); ++ranks) proven += prove_all(ranks, {1, 2}, true);
  EXPECT_GT(proven, 8);
}

TEST_P(CatalogueProof, HoldsForNineToSixteenRanks) {
  int proven = 0;
  for (std::uint32_t ranks = 9; ranks <= 16 && !HasFailure(); ++ranks) proven += prove_all(ranks, {1, 2}, false);
  EXPECT_GT(proven, 0);
}

TEST_P(CatalogueProof, HoldsForManyRanks) {
  int proven = 0;
  for (const std::uint32_t ranks : {17U, 24U, 32U, 64U})
    if (!HasFailure()) proven += prove_all(ranks, {1}, false);
  EXPECT_GT(proven, 0);
}

TEST(Catalogue, SaysWhatAnAlgorithmAsksFor) {
  const auto asks = [](std::string_view name, std::uint32_t ranks, Collective collective = Collective::all_reduce) {
    PlanRequest request;
    request.collective = collective;
    request.ranks = ranks;
    return asks_for(*find_algorithm(name), request);
  };
  EXPECT_EQ(asks("ring", 4), Asks::nothing);
  EXPECT_EQ(asks("peer_push", 4), Asks::peer_memory);
  EXPECT_EQ(asks("hierarchical", 9), Asks::islands);
  EXPECT_EQ(asks("hierarchical", 7), Asks::something_else) << "islands of it are of one size";
  EXPECT_EQ(asks("multi_leader", 7), Asks::islands);
  EXPECT_EQ(asks("multi_leader", 4, Collective::all_to_all), Asks::something_else);
  EXPECT_EQ(asks("bruck", 4), Asks::something_else);
  EXPECT_EQ(asks("bruck", 4, Collective::all_to_all), Asks::nothing);
}

TEST(Catalogue, NamesAllAlgorithms) {
  const std::string names = ", " + algorithm_names() + ",";
  for (const Algorithm& algorithm : catalogue())
    EXPECT_NE(names.find(", " + std::string(algorithm.name) + ","), std::string::npos) << algorithm.name;
}

INSTANTIATE_TEST_SUITE_P(All, CatalogueProof, testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace strait
