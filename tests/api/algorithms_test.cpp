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

PlanRequest request_of(Collective collective, int ranks, bool order_free) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = static_cast<std::uint32_t>(ranks);
  request.peer_memory = true;
  request.order_free = order_free;
  return request;
}

/// Sums that are rounded on the way have no bits to be compared with, but all ranks and runs must agree.
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
      const PlanRequest request = request_of(collective, ranks, type == DataType::int32);
      if (!algorithm.supports(request)) continue;
      if (type != DataType::int32 && algorithm.numerics(request) == Numerics::rounded) continue;
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

TEST(ForcedName, AnUnknownNameIsRefused) {
  setenv("STRAIT_ALGORITHM", "teleport", 1);
  straitUniqueId id;
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  EXPECT_EQ(straitCommInitRank(&comm, 1, &id, 0, nullptr), straitInvalidUsage);
  EXPECT_NE(std::string(straitGetLastError(nullptr)).find("teleport"), std::string::npos);
  unsetenv("STRAIT_ALGORITHM");
}

}  // namespace
}  // namespace strait::testing
