// Ranks that join over TCP and UCX, one of which cannot, or is told not to.
#include <gmock/gmock.h>

#include <cstdlib>
#include <vector>

#include "support/ranks.hpp"
#include "transports/tcp/ucx/ucx.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

class UcxJoin : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto worker = ucx::Worker::open(0, 1);
    if (!worker && worker.error().code == Code::unsupported) GTEST_SKIP() << worker.error().message;
  }
  /// Starts three processes, the last with that setting, and checks what all of them are told.
  static void expect_all_told(const char* variable, const char* value, straitResult_t result, const char* text) {
    LateId id;
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(fork_rank([&, rank] {
        setenv("STRAIT_TRANSPORT", "tcp", 1);
        setenv("STRAIT_UCX", "all", 1);
        if (rank == 2) setenv(variable, value, 1);
        const straitConfig_t config = test_config();
        straitComm_t comm = nullptr;
        EXPECT_EQ(straitCommInitRank(&comm, 3, &id.await(), rank, &config), result);
        EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("rank 2"));
        EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(text));
      }));
    id.make();
    for (const pid_t rank : ranks) EXPECT_EQ(wait_for(rank, 60'000), 0);
  }
};

TEST_F(UcxJoin, WhoCannotIsNamedOnAllRanks) {
  expect_all_told("UCX_TLS", "none_of_these", straitUnsupported, "cannot do what STRAIT_UCX asks for");
}

TEST_F(UcxJoin, AllHaveToBeToldAlike) { expect_all_told("STRAIT_UCX", "off", straitMismatch, "STRAIT_UCX is \"all\""); }

}  // namespace
}  // namespace strait::testing
