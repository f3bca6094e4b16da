// How ranks determine the rate for which calls are cut. Without a GPU.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "api/api.hpp"
#include "fake_device_rank.hpp"
#include "support/ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using std::chrono::nanoseconds;
using ::testing::Each;
using ::testing::HasSubstr;
constexpr int ranks = 3;

/// Ranks ask for rates, and measure if `fake_gpu.copy` is set.
class DeviceRankRates : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_gpu.asks_for_rates = true;
    fake_gpu.looks = 0;
  }
  void TearDown() override {
    fake_gpu.asks_for_rates = false;
    fake_gpu.copy = nullptr;
    for (const char* name : {"STRAIT_EXCHANGE_GBPS", "STRAIT_MEASURE_EXCHANGE"}) unsetenv(name);
  }
  /// Returns the rates that all ranks of a new communicator use.
  static std::vector<ExchangeRates> rates() {
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    std::vector<ExchangeRates> all(ranks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        straitConfig_t config = test_config();
        config.device = rank;
        straitComm_t comm = nullptr;
        STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
        if (comm == nullptr) return;
        all[static_cast<std::size_t>(rank)] = comm->comm->exchange_rates();
        STRAIT_EXPECT_OK(straitCommDestroy(comm));
      });
    threads.clear();
    return all;
  }
  static std::vector<double> gbps() {
    std::vector<double> all;
    for (const ExchangeRates& each : rates()) all.push_back(each.gbps);
    return all;
  }
  /// Makes each rank's copies run at its rate in `gbps`; copies of a rank with 0 fail.
  static void copies_give(std::vector<double> gbps) {
    fake_gpu.copy = [gbps = std::move(gbps)](const DeviceRank::Request& request,
                                             std::size_t bytes) -> Result<nanoseconds> {
      if (gbps[request.rank] == 0) return fail(Code::cuda_error, "no copy engine");
      return nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) / gbps[request.rank]));
    };
  }
};

TEST_F(DeviceRankRates, AreThoseThatRank0Sees) {
  EXPECT_THAT(gbps(), Each(1.5));
  EXPECT_EQ(fake_gpu.looks, 1);
}

TEST_F(DeviceRankRates, MayBeGiven) {
  copies_give({0.1, 0.1, 0.1});
  setenv("STRAIT_EXCHANGE_GBPS", "0.6", 1);
  EXPECT_THAT(gbps(), Each(0.6)) << "and then are not measured";
  for (const char* wrong : {"0", "-1", "fast", "0.6 GB/s", "nan", "inf"}) {
    setenv("STRAIT_EXCHANGE_GBPS", wrong, 1);
    straitUniqueId id;
    straitConfig_t config = test_config();
    config.device = 0;
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    EXPECT_EQ(straitCommInitRank(&comm, 1, &id, 0, &config), straitInvalidArgument) << wrong;
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("STRAIT_EXCHANGE_GBPS=\"" + std::string(wrong)));
  }
}

TEST_F(DeviceRankRates, AreTheSlowestRanksWhereAllMeasure) {
  copies_give({1.3, 0.5, 0.7});
  for (const ExchangeRates& each : rates()) {
    EXPECT_NEAR(each.gbps, 0.5, 1e-3);
    EXPECT_EQ(each.gbps, each.measured_gbps);
  }
  copies_give({1.3, 0, 0.7});
  for (const double each : gbps()) EXPECT_NEAR(each, 0.7, 1e-3);
  copies_give({0, 0, 0});
  EXPECT_THAT(gbps(), Each(3.5)) << "what rank 0 sees the third time";
}

TEST_F(DeviceRankRates, AreNotMeasuredWhereThatIsSwitchedOff) {
  copies_give({0.1, 0.1, 0.1});
  setenv("STRAIT_MEASURE_EXCHANGE", "0", 1);
  for (const ExchangeRates& each : rates()) {
    EXPECT_EQ(each.gbps, 1.5);
    EXPECT_EQ(each.measured_gbps, 0);
  }
}

/// A rank whose copies do not end learns that the communicator is not going to be made.
TEST_F(DeviceRankRates, EndWithTheCommunicator) {
  std::atomic<int> waiting{0};
  fake_gpu.copy = [&](const DeviceRank::Request& request, std::size_t /*bytes*/) -> Result<nanoseconds> {
    if (request.rank != 1) return nanoseconds(1'000'000);
    for (++waiting;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) STRAIT_TRY(request.goes_on());
  };
  for (const bool aborts : {true, false}) {
    waiting = 0;
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    std::array<straitComm_t, 2> comms{};
    std::vector<std::jthread> threads;
    const Stopwatch watch;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        straitConfig_t config = test_config();
        config.device = rank;
        if (!aborts) config.init_timeout_ms = 3000;
        STRAIT_EXPECT_OK(straitGroupStart());
        STRAIT_EXPECT_OK(straitCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, &id, rank, &config));
        const straitResult_t made = straitGroupEnd();
        EXPECT_TRUE(aborts ? made == straitAborted : made != straitSuccess) << made;
      });
    while (waiting == 0 && watch.elapsed() < std::chrono::seconds(15))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(waiting, 1);
    if (aborts) STRAIT_EXPECT_OK(straitCommAbort(comms[0]));
    threads.clear();
    EXPECT_LT(watch.elapsed(), std::chrono::seconds(15)) << "not after test_config()'s 20 s";
    for (straitComm_t comm : comms)
      if (comm != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(comm));
  }
}

}  // namespace
}  // namespace strait::testing
