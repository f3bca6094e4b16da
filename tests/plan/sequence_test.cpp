#include <gtest/gtest.h>

#include <map>
#include <random>

#include "plan/proof.hpp"
#include "plan/request.hpp"
#include "requests.hpp"

/// Proofs of operations that follow one another and of groups of sends and receives; and how much data plans move.
namespace strait {
namespace {

/// Returns a random operation that `ranks` ranks can do, with a random algorithm, root, number of slices and placement.
ProofOperation random_operation(std::uint32_t ranks, std::mt19937& random) {
  while (true) {
    const auto collective = static_cast<Collective>(random() % collective_count);
    const auto requests = test::requests(collective, ranks);
    if (requests.empty()) continue;
    const PlanRequest& request = requests[random() % requests.size()];
    const Algorithm& algorithm = catalogue()[random() % catalogue().size()];
    if (!algorithm.supports(request)) continue;
    const auto placements = test::placements(collective);
    auto [plan, in_place] = test::build(algorithm, request, placements[random() % placements.size()]);
    return {std::move(plan),
            {.depth = 1 + static_cast<std::uint32_t>(random() % 3),
             .slices = 1 + static_cast<std::uint32_t>(random() % 4),
             .in_place = in_place,
             .numerics = algorithm.sums,
             .point_to_point = {}}};
  }
}

ProofOperation group_operation(std::uint32_t ranks, std::uint32_t messages, std::uint32_t seed) {
  const Algorithm& algorithm = *find_algorithm("point_to_point");
  ProofOperation operation;
  operation.options.point_to_point = test::random_group(ranks, messages, seed);
  operation.options.slices = 1 + seed % 4;
  operation.options.depth = 1 + seed % 2;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    PlanRequest request;
    request.collective = Collective::send_recv;
    request.ranks = ranks;
    request.point_to_point = operation.options.point_to_point[rank];
    operation.plan.push_back(algorithm.build(request, rank));
  }
  return operation;
}

TEST(BackToBack, RandomOperationsShareLinks) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t ranks = 2 + random() % 7;
    std::vector<ProofOperation> operations;
    std::string names;
    for (int i = 0; i < 5; ++i) {
      operations.push_back(i == 2 ? group_operation(ranks, 2 * ranks, seed) : random_operation(ranks, random));
      names +=
          operations.back().plan[0].algorithm + " " + std::string(name(operations.back().plan[0].collective)) + ", ";
    }
    const Status proof = prove(operations);
    ASSERT_TRUE(proof) << proof.error().message << "\nseed " << seed << ": " << names;
  }
}

TEST(BackToBack, ARootRunsAheadAsFarAsTheLinksAreDeep) {
  PlanRequest request;
  request.collective = Collective::broadcast;
  request.ranks = 4;
  const Plan plan = build_all(*find_algorithm("one_hop"), request);
  const std::vector<ProofOperation> operations(5, {plan, {.depth = 3, .slices = 1}});
  const Status proof = prove(operations);
  EXPECT_TRUE(proof) << proof.error().message;
}

TEST(BackToBack, AnOperationThatLeavesASlotBehindIsRejected) {
  PlanRequest request;
  request.collective = Collective::broadcast;
  request.ranks = 2;
  const Algorithm& algorithm = *find_algorithm("one_hop");
  std::vector<ProofOperation> operations(2, {build_all(algorithm, request), {.depth = 2, .slices = 1}});
  operations[0].options.slices = 2;  // same plan, but the second operation's reader finds what the first left
  EXPECT_TRUE(prove(operations));
  operations[0].plan[0].lanes[0].steps.push_back(operations[0].plan[0].lanes[0].steps[0]);
  EXPECT_FALSE(prove(operations));
}

TEST(SendReceive, RandomGroupsAreProven) {
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      const ProofOperation operation = group_operation(ranks, seed * ranks / 3, seed);
      const Status proof = prove(operation.plan, operation.options);
      ASSERT_TRUE(proof) << proof.error().message << "\n" << ranks << " ranks, seed " << seed;
    }
}

TEST(SendReceive, AReceiveInTheWrongOrderIsRejected) {
  ProofOperation operation;
  operation.options.point_to_point = {{{true, 1}, {true, 1}}, {{false, 0}, {false, 0}}};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    PlanRequest request;
    request.collective = Collective::send_recv;
    request.ranks = 2;
    request.point_to_point = operation.options.point_to_point[rank];
    operation.plan.push_back(find_algorithm("point_to_point")->build(request, rank));
  }
  EXPECT_TRUE(prove(operation.plan, operation.options));
  auto& steps = operation.plan[1].lanes[0].steps;
  std::swap(steps[0], steps[1]);
  EXPECT_FALSE(prove(operation.plan, operation.options));
}

struct Textbook {
  const char* algorithm;
  Collective collective;
  /// Chunks that a rank sends, and chunks that it receives, by number of ranks.
  std::uint64_t (*sent)(std::uint64_t n);
  std::uint64_t (*received)(std::uint64_t n);
};

class TrafficTest : public testing::TestWithParam<Textbook> {};

TEST_P(TrafficTest, EqualsTheTextbookOnEveryRank) {
  for (std::uint32_t n = 2; n <= 16; ++n) {
    PlanRequest request;
    request.collective = GetParam().collective;
    request.ranks = n;
    request.peer_memory = true;
    for (const RankPlan& plan : build_all(*find_algorithm(GetParam().algorithm), request)) {
      EXPECT_EQ(traffic_of(plan).sent_chunks, GetParam().sent(n)) << n << " ranks, rank " << plan.rank;
      EXPECT_EQ(traffic_of(plan).received_chunks, GetParam().received(n)) << n << " ranks, rank " << plan.rank;
    }
  }
}

constexpr auto n_less_1 = [](std::uint64_t n) { return n - 1; };
constexpr auto twice_n_less_1 = [](std::uint64_t n) { return 2 * (n - 1); };
constexpr auto all = [](std::uint64_t n) { return n; };
constexpr auto one = [](std::uint64_t) { return std::uint64_t{1}; };
constexpr auto none = [](std::uint64_t) { return std::uint64_t{0}; };

// All-reduces that divide the buffer of S bytes into n chunks of S/n: a ring moves 2(n-1)/n S, and so on.
INSTANTIATE_TEST_SUITE_P(Textbook, TrafficTest,
                         testing::Values(Textbook{"ring", Collective::all_reduce, twice_n_less_1, twice_n_less_1},
                                         Textbook{"ring", Collective::all_gather, n_less_1, n_less_1},
                                         Textbook{"ring", Collective::reduce_scatter, n_less_1, n_less_1},
                                         Textbook{"two_hop", Collective::all_reduce, all, twice_n_less_1},
                                         Textbook{"staged", Collective::all_reduce, all, twice_n_less_1},
                                         Textbook{"one_hop", Collective::all_reduce, one, n_less_1},
                                         Textbook{"one_hop", Collective::all_gather, one, n_less_1},
                                         Textbook{"direct", Collective::all_to_all, n_less_1, n_less_1},
                                         Textbook{"direct", Collective::reduce_scatter, n_less_1, n_less_1},
                                         Textbook{"bruck", Collective::all_gather, n_less_1, n_less_1},
                                         Textbook{"bruck", Collective::reduce_scatter, n_less_1, n_less_1},
                                         Textbook{"peer_one_hop", Collective::all_gather, none, n_less_1},
                                         Textbook{"peer_two_hop", Collective::all_reduce, none, twice_n_less_1},
                                         Textbook{"peer_push", Collective::all_reduce, n_less_1, n_less_1},
                                         Textbook{"point_to_point", Collective::all_to_all_v, n_less_1, n_less_1}),
                         [](const auto& parameter) {
                           return std::string(parameter.param.algorithm) + "_" + std::to_string(parameter.index);
                         });

TEST(Traffic, OfHalvingAndDoublingEqualsTheTextbookForPowersOfTwo) {
  for (const std::uint32_t n : {2U, 4U, 8U, 16U}) {
    PlanRequest request;
    request.ranks = n;
    for (const RankPlan& plan : build_all(*find_algorithm("halving_doubling"), request))
      EXPECT_EQ(traffic_of(plan).sent_chunks, 2 * (n - 1)) << n;
  }
}

TEST(Traffic, OfATreeIsAtMostTwoChildrenUpAndDown) {
  // Each of two trees carries half of the data. A rank is an inner node of at most one, which makes at most 3 halves in
  // and 3 out, and a leaf of the other, which makes one more each. The root is above both trees: 2 in and 2 out.
  for (std::uint32_t n = 2; n <= 64; ++n) {
    PlanRequest request;
    request.ranks = n;
    request.multicast = false;
    for (const RankPlan& plan : build_all(*find_algorithm("tree"), request)) {
      EXPECT_LE(traffic_of(plan).sent_chunks, 4U) << n << " ranks, rank " << plan.rank;
      EXPECT_LE(traffic_of(plan).received_chunks, 4U) << n << " ranks, rank " << plan.rank;
    }
  }
}

TEST(Traffic, BetweenIslandsIsOneShareOfTheDataForEachRank) {
  // 2 islands of 4: of the 8 chunks each rank sends its own 2 across, once as a contribution and once as a sum.
  PlanRequest request;
  request.ranks = 8;
  request.shape = test::shape_of(8, {4});
  for (const RankPlan& plan : build_all(*find_algorithm("hierarchical"), request)) {
    int across = 0;
    for (const Step& step : plan.lanes[0].steps)
      for (const Operand& destination : step.destinations)
        if (destination.kind == Operand::Kind::send)
          across += plan.links[destination.link].readers[0] / 4 != plan.rank / 4;
    EXPECT_EQ(across, 2) << plan.rank;
  }
}

TEST(Traffic, AnIslandOfAnySizeSendsAndReceivesAChunkOnce) {
  // Islands of one, two, three, one and three ranks, which are not neighbours.
  PlanRequest request;
  request.ranks = 10;
  request.shape.levels = {{0, 1, 2, 3, 4, 4, 2, 2, 1, 4}};
  const std::vector<std::uint32_t>& island = request.shape.levels[0];
  const Plan plan = build_all(*find_algorithm("multi_leader"), request);
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> sent, received;  // by island and chunk
  for (const RankPlan& mine : plan)
    for (const Lane& lane : mine.lanes)
      for (const Step& step : lane.steps) {
        for (const Operand& to : step.destinations) {
          if (to.kind != Operand::Kind::send) continue;
          const LinkEnd& link = mine.links[to.link];
          const bool leaves = island[link.readers.front()] != island[mine.rank];
          for (const std::uint32_t reader : link.readers)
            EXPECT_EQ(island[reader] != island[mine.rank], leaves) << "a link is of an island or between islands";
          if (leaves) ++sent[{island[mine.rank], to.chunk}];
        }
        for (const Operand& from : step.sources)
          if (from.kind == Operand::Kind::receive && island[mine.links[from.link].writer] != island[mine.rank])
            ++received[{island[mine.rank], from.chunk}];
      }
  for (std::uint32_t i = 0; i < 5; ++i)
    for (std::uint32_t chunk = 0; chunk < 10; ++chunk) {
      EXPECT_EQ((sent[{i, chunk}]), 1) << "island " << i << ", chunk " << chunk << ": its part, or the sum";
      const bool adds = island[chunk] == i;
      EXPECT_EQ((received[{i, chunk}]), adds ? 4 : 1) << "island " << i << ", chunk " << chunk;
    }
}

}  // namespace
}  // namespace strait
