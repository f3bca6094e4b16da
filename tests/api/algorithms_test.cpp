// Every algorithm of the catalogue, forced by STRAIT_ALGORITHM, through the public interface.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "api/values.hpp"
#include "host/collective_case.hpp"
#include "plan/request.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter};

PlanRequest request_of(Collective collective, int ranks) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = static_cast<std::uint32_t>(ranks);
  request.peer_memory = true;
  return request;
}

/// For sums that are rounded at every hop there are no reference bits, but all ranks and runs must agree.
class Agreement {
 public:
  void expect_same(const std::vector<float>& values, const std::string& what) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& first = first_[what];
    if (first.empty()) first = values;
    EXPECT_EQ(std::memcmp(first.data(), values.data(), values.size() * sizeof(float)), 0) << what;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<float>> first_;
};

void check_rounded(straitComm_t comm, int rank, int ranks, Agreement& agreement) {
  for (std::size_t count : {std::size_t{7}, std::size_t{20'011}})
    for (int run = 0; run < 2; ++run) {
      std::vector<float> mine(count), sum(count), block(count);
      for (std::size_t i = 0; i < count; ++i)
        mine[i] =
            static_cast<float>(static_cast<std::int32_t>(mix(i * 16 + static_cast<std::size_t>(rank)) >> 32)) / 3.f;
      STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), count, straitFloat32, straitSum, comm, nullptr));
      agreement.expect_same(sum, "all-reduce of " + std::to_string(count));
      STRAIT_EXPECT_OK(straitReduce(mine.data(), sum.data(), count, straitFloat32, straitSum, 0, comm, nullptr));
      if (rank == 0) agreement.expect_same(sum, "reduce of " + std::to_string(count));
      const std::size_t part = count / static_cast<std::size_t>(ranks);
      STRAIT_EXPECT_OK(straitReduceScatter(mine.data(), block.data(), part, straitFloat32, straitSum, comm, nullptr));
      block.resize(part);
      agreement.expect_same(block, "block " + std::to_string(rank) + " of " + std::to_string(count));
    }
}

void check_algorithm(const Algorithm& algorithm, straitComm_t comm, int rank, int ranks) {
  std::uint64_t seed = 0;
  for (Collective collective : collectives)
    for (DataType type : {DataType::int32, DataType::float32, DataType::bfloat16}) {
      const PlanRequest request = request_of(collective, ranks);
      if (!algorithm.supports(request)) continue;
      if (is_reduction(collective) && type != DataType::int32 && algorithm.sums == Numerics::rounded) continue;
      for (std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{20'011}}) {
        CollectiveCase c;
        c.collective = collective;
        c.type = type;
        c.count = count;
        c.seed = ++seed;
        c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
        c.in_place = seed % 3 == 0;
        check_collective(comm, rank, ranks, c);
      }
    }
  STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
}

class Forced : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { setenv("STRAIT_ALGORITHM", GetParam().c_str(), 1); }
  void TearDown() override { unsetenv("STRAIT_ALGORITHM"); }
};

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : catalogue()) names.emplace_back(algorithm.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Algorithms, Forced, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& test) { return test.param; });

TEST_P(Forced, GivesTheBitsThatItPromises) {
  const Algorithm& algorithm = *find_algorithm(GetParam());
  for (int ranks : {2, 3, 4, 5}) {
    Agreement agreement;
    run_as_threads(ranks, [&](straitComm_t comm, int rank, int) {
      check_algorithm(algorithm, comm, rank, ranks);
      check_rounded(comm, rank, ranks, agreement);
    });
  }
}

constexpr Collective with_options[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                       Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                       Collective::gather,     Collective::scatter};

/// Runs all algorithms on one communicator, alternating with calls that name none.
TEST(OfACall, EveryAlgorithmInTurn) {
  ASSERT_LT(catalogue().size(), 32U) << "what a signature has room for";
  for (const int ranks : {2, 3, 4})
    run_as_threads(ranks, [](straitComm_t comm, int rank, int rank_count) {
      std::uint64_t seed = 0;
      for (const Collective collective : with_options)
        for (const std::size_t count : {std::size_t{13}, std::size_t{20'011}})
          for (const Algorithm& algorithm : catalogue()) {
            CollectiveCase c;
            c.collective = collective;
            c.type = DataType::int32;
            c.count = count;
            if (!algorithm.supports(request_of(collective, rank_count))) continue;
            c.algorithm = algorithm.name;
            c.seed = ++seed;
            c.in_place = seed % 3 == 0;
            if (has_root(collective)) c.root = static_cast<std::uint32_t>(rank_count) - 1;
            check_collective(comm, rank, rank_count, c);
            c.algorithm.clear();
            check_collective(comm, rank, rank_count, c);
          }
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    });
}

/// The algorithm is neither the one that would be chosen nor the environment's. The test can tell, because a sum that
/// is rounded at every hop has other bits.
TEST(OfACall, OverrulesTheEnvironment) {
  setenv("STRAIT_ALGORITHM", "staged", 1);
  run_as_threads(3, [](straitComm_t comm, int rank, int) {
    constexpr std::size_t count = 5000;
    std::vector<float> mine(count), by_staged(count), by_ring(count);
    for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<float>(mix(i + 5000 * static_cast<unsigned>(rank)));
    STRAIT_EXPECT_OK(straitAllReduce(mine.data(), by_staged.data(), count, straitFloat32, straitSum, comm, nullptr));
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.algorithm = "ring";
    STRAIT_EXPECT_OK(straitAllReduceWithOptions(mine.data(), by_ring.data(), count, straitFloat32, straitSum, comm,
                                                nullptr, &options));
    EXPECT_NE(by_staged, by_ring);
    options.algorithm = nullptr;
    STRAIT_EXPECT_OK(straitAllReduceWithOptions(mine.data(), by_ring.data(), count, straitFloat32, straitSum, comm,
                                                nullptr, &options));
    EXPECT_EQ(by_staged, by_ring);
  });
  unsetenv("STRAIT_ALGORITHM");
}

TEST(OfACall, WhatCannotBeIsRefusedAndChangesNothing) {
  run_as_threads(3, [](straitComm_t comm, int rank, int) {
    std::vector<float> data(96, 1.f), output(96, 7.f);
    const auto refused = [&](const char* algorithm, straitWireFormat_t wire) {
      straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
      options.algorithm = algorithm;
      options.wire = wire;
      EXPECT_EQ(straitAllToAllWithOptions(data.data(), output.data(), 32, straitFloat32, comm, nullptr, &options),
                straitInvalidArgument);
      return std::string(straitGetLastError(nullptr));
    };
    EXPECT_NE(refused("teleport", straitWireDefault).find("teleport"), std::string::npos);
    EXPECT_NE(refused("", straitWireDefault).find("strait explain"), std::string::npos);
    EXPECT_NE(refused("tree", straitWireDefault).find("on 3 ranks cannot be carried out by tree"), std::string::npos);
    EXPECT_NE(refused("direct", straitWireInt8).find("wire format"), std::string::npos);
    EXPECT_EQ(output, std::vector<float>(96, 7.f));
    STRAIT_EXPECT_OK(straitAllToAll(data.data(), output.data(), 32, straitFloat32, comm, nullptr));
    EXPECT_EQ(output, data) << "rank " << rank;
  });
}

TEST(ForcedName, AnUnknownNameIsRefused) {
  setenv("STRAIT_ALGORITHM", "teleport", 1);
  straitUniqueId id;
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  EXPECT_EQ(straitCommInitRank(&comm, 1, &id, 0, nullptr), straitInvalidUsage);
  EXPECT_NE(std::string(straitGetLastError(nullptr)).find("teleport"), std::string::npos);
  unsetenv("STRAIT_ALGORITHM");
}

/// Plans are kept for later calls of the same kind, which must use their own buffers.
TEST(PeersBuffers, AreThoseOfTheCall) {
  constexpr std::size_t count = 10'000;
  for (const char* algorithm : {"peer_one_hop", "peer_two_hop", "peer_push"}) {
    setenv("STRAIT_ALGORITHM", algorithm, 1);
    run_as_threads(3, [&](straitComm_t comm, int rank, int ranks) {
      std::vector<std::vector<std::int32_t>> inputs, outputs(3, std::vector<std::int32_t>(count));  // all at once
      for (std::uint64_t call = 0; call < 3; ++call)
        inputs.push_back(numbers(count, 100 * call + static_cast<std::uint64_t>(rank)));
      for (std::size_t call = 0; call < 3; ++call) {
        STRAIT_EXPECT_OK(
            straitAllReduce(inputs[call].data(), outputs[call].data(), count, straitInt32, straitSum, comm, nullptr));
        EXPECT_EQ(outputs[call], sum_of_numbers(count, 100 * call, ranks)) << algorithm << ", call " << call;
      }
    });
  }
  unsetenv("STRAIT_ALGORITHM");
}

/// These algorithms read a peer's memory without a message that names the call that the peer is in.
TEST(PeersBuffers, AreThoseOfTheSameCallOrOfNone) {
  for (const char* algorithm : {"peer_one_hop", "peer_two_hop", "peer_push"}) {
    setenv("STRAIT_ALGORITHM", algorithm, 1);
    run_as_threads(2, [&](straitComm_t comm, int rank, int) {
      std::vector<std::int32_t> input(60'000), output(60'000);
      EXPECT_EQ(straitAllReduce(input.data(), output.data(), rank == 0 ? 50'000 : 60'000, straitInt32, straitSum, comm,
                                nullptr),
                straitMismatch)
          << algorithm;
    });
  }
  unsetenv("STRAIT_ALGORITHM");
}

}  // namespace
}  // namespace strait::testing
