// How much host memory all communicators of a process pin together. Without a GPU.
#include "device/staging_account.hpp"

#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "device/staging_budget.hpp"
#include "gpu_ranks.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t mb = std::size_t{1} << 20;

StagingAccount::Wish wish(const std::string& communicator, bool has_reducers = false) {
  return {communicator, 128 * mb, 4, has_reducers, false};
}

TEST(StagingAccount, ACommunicatorCountsOnceAndUntilItsLastLeaseEnds) {
  StagingAccount account;
  auto first = account.lease(wish("one")), second = account.lease(wish("one"));
  EXPECT_EQ(first->granted_bytes(), 128 * mb);
  EXPECT_EQ(second->granted_bytes(), 128 * mb);
  EXPECT_EQ(account.pinned_bytes(), 60 * mb);  // an upper bound, until it is settled
  first->settle(50 * mb);
  second->settle(50 * mb);
  EXPECT_EQ(account.pinned_bytes(), 50 * mb);
  auto held = first;  // as by memory that is not unpinned yet
  first.reset();
  second.reset();
  EXPECT_EQ(account.pinned_bytes(), 50 * mb);
  held.reset();
  EXPECT_EQ(account.pinned_bytes(), 0u);
  EXPECT_EQ(account.lease(wish("two"))->granted_bytes(), 128 * mb);
}

TEST(StagingAccount, LaterCommunicatorsGetWhatIsLeft) {
  StagingAccount account;
  const auto first = account.lease(wish("one"));
  first->settle(40 * mb);
  const auto second = account.lease(wish("two"));
  EXPECT_EQ(second->granted_bytes(), 88 * mb);
  second->settle(41 * mb);
  EXPECT_EQ(account.lease(wish("three"))->granted_bytes(), 47 * mb);
  const auto with_reducers = account.lease(wish("three", true));
  EXPECT_EQ(with_reducers->granted_bytes(), StagingBudget::least_bytes(4));
  with_reducers->settle(60 * mb);
  EXPECT_EQ(account.lease(wish("four"))->granted_bytes(), StagingBudget::least_bytes(4));
}

/// Communicators made at the same time by ranks that are threads: in any order, each communicator has a single grant,
/// one gets the full amount, and together they stay within the bound.
TEST(StagingAccount, CommunicatorsOfManyThreadsDoNotTakeTheSameMemory) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    StagingAccount account;
    constexpr int communicators = 3, ranks = 2;
    std::shared_ptr<const StagingAccount::Lease> leases[communicators][ranks];
    {
      std::vector<std::jthread> threads;
      for (int communicator = 0; communicator < communicators; ++communicator)
        for (int rank = 0; rank < ranks; ++rank)
          threads.emplace_back([&, communicator, rank] {
            leases[communicator][rank] = account.lease(wish(std::to_string(communicator)));
          });
    }
    int with_all = 0;
    for (auto& [one, other] : leases) {
      EXPECT_EQ(one->granted_bytes(), other->granted_bytes());
      with_all += one->granted_bytes() == 128 * mb ? 1 : 0;
    }
    EXPECT_EQ(with_all, 1);
    EXPECT_GT(account.pinned_bytes(), 100 * mb);
    EXPECT_LE(account.pinned_bytes(), 128 * mb);
    std::vector<std::jthread> threads;
    for (auto& communicator : leases)
      for (auto& lease : communicator) threads.emplace_back([&lease] { lease.reset(); });
    threads.clear();
    EXPECT_EQ(account.pinned_bytes(), 0u);
  }
}

DeviceRank::Request request_of(std::vector<std::uint32_t> others) {
  DeviceRank::Request request;
  request.communicator = "agreement";
  request.ranks = static_cast<std::uint32_t>(others.size()) + 1;
  request.options.host_memory_bytes = 128 * mb;
  request.gather = [others](std::uint32_t word) -> Result<std::vector<std::uint32_t>> {
    auto all = others;
    all.push_back(word);
    return all;
  };
  return request;
}

TEST(StagingAgreement, IsOnWhatTheFullestProcessHas) {
  const auto alone = agree_on_staging(request_of({}), false, false);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->bytes, 128 * mb);
  const auto agreed = agree_on_staging(request_of({100 * mb / 4096, 36 * mb / 4096}), false, false);
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->bytes, 36 * mb);
}

TEST(StagingAgreement, ThatFailsLeavesNothingBehind) {
  auto request = request_of({});
  request.gather = [](std::uint32_t /*word*/) -> Result<std::vector<std::uint32_t>> {
    return fail(Code::remote_error, "a rank died");
  };
  EXPECT_FALSE(agree_on_staging(request, true, true));
  EXPECT_EQ(StagingAccount::of_process().pinned_bytes(), 0u);
}

/// The warning comes once per process, so this test has its own.
TEST(StagingAgreement, BeyondTheBoundAWarningSaysSoOnce) {
  const pid_t process = fork_rank([] {
    const auto request = request_of({1 << 20});
    const auto share = agree_on_staging(request, false, false);
    ASSERT_TRUE(share);
    const auto told_of = [&](std::size_t bytes) {
      ::testing::internal::CaptureStderr();
      settle_staging(request, *share, bytes);
      return ::testing::internal::GetCapturedStderr();
    };
    EXPECT_THAT(told_of(128 * mb), IsEmpty());
    EXPECT_THAT(told_of(140 * mb), AllOf(HasSubstr("pin 140 MB"), HasSubstr("STRAIT_HOST_MEMORY_BYTES is 128 MB"),
                                         HasSubstr("2 ranks is laid out for 12 MB")));
    EXPECT_THAT(told_of(150 * mb), IsEmpty());
  });
  EXPECT_EQ(wait_for(process, 20'000), 0);
}

/// The fake pins only arenas.
constexpr std::size_t arenas_bytes(std::size_t bytes) { return StagingBudget::of(bytes, false, false).total_bytes(); }

straitComm_t join(const straitUniqueId& id, int rank, int ranks) {
  straitComm_t comm = nullptr;
  straitConfig_t config = test_config();
  config.device = rank;
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
  return comm;
}

TEST(StagingOfRanks, ThatAreThreadsCountsUntilTheyDestroyTheirCommunicator) {
  fake_gpu.stages = true;
  const auto first = join_in_a_group(2);
  EXPECT_EQ(fake_gpu.staged_for[0], 128 * mb);
  EXPECT_EQ(fake_gpu.staged_for[1], 128 * mb);
  const auto second = join_in_a_group(3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(fake_gpu.staged_for[rank], 68 * mb) << rank;
  EXPECT_EQ(StagingAccount::of_process().pinned_bytes(), 60 * mb + arenas_bytes(68 * mb));
  for (straitComm_t comm : first) STRAIT_EXPECT_OK(straitCommDestroy(comm));
  EXPECT_EQ(StagingAccount::of_process().pinned_bytes(), arenas_bytes(68 * mb));
  for (straitComm_t comm : second) STRAIT_EXPECT_OK(straitCommAbort(comm));
  EXPECT_EQ(StagingAccount::of_process().pinned_bytes(), arenas_bytes(68 * mb));
  for (straitComm_t comm : second) STRAIT_EXPECT_OK(straitCommDestroy(comm));
  EXPECT_EQ(StagingAccount::of_process().pinned_bytes(), 0u);
  fake_gpu.stages = false;
}

/// The process of one rank has one more communicator than the others.
TEST(StagingOfRanks, ThatAreProcessesIsWhatTheFullestHasLeft) {
  fake_gpu.stages = true;
  setenv("STRAIT_SHARE_GPUS", "1", 1);
  LateId id;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank)
    processes.push_back(fork_rank([&, rank] {
      straitComm_t own = nullptr;
      if (rank == 1) {
        straitUniqueId of_one;
        STRAIT_EXPECT_OK(straitGetUniqueId(&of_one));
        own = join(of_one, 0, 1);
        EXPECT_EQ(fake_gpu.staged_for[0], 128 * mb);
      }
      straitComm_t comm = join(id.await(), rank, 3);
      EXPECT_EQ(fake_gpu.staged_for[rank], 68 * mb) << rank;
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
      if (own != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(own));
    }));
  id.make();
  for (const pid_t process : processes) EXPECT_EQ(wait_for(process, 20'000), 0);
  unsetenv("STRAIT_SHARE_GPUS");
  fake_gpu.stages = false;
}

}  // namespace
}  // namespace strait::testing
