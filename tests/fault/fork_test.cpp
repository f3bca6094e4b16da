// Forked children (data loaders, for example) inherit their parent's communicators. Every use of these by a child must
// be refused, without an effect on the parent or its peers.
#include "fault/rank_processes.hpp"

namespace strait::testing {
namespace {

constexpr int ranks = 3;

using ::testing::HasSubstr;

void expect_refused(straitResult_t result) {
  EXPECT_EQ(result, straitInvalidUsage);
  EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("forked"));
}

/// Makes every call that a child could make on an inherited communicator.
void use_inherited(straitComm_t comm) {
  std::int32_t value = 1;
  straitResult_t state = straitSuccess;
  straitComm_t made = nullptr;
  expect_refused(straitAllReduce(&value, &value, 1, straitInt32, straitSum, comm, nullptr));
  expect_refused(straitSend(&value, 1, straitInt32, 0, comm, nullptr));
  expect_refused(straitCommSplit(comm, 0, 0, &made, nullptr));
  expect_refused(straitCommShrink(comm, nullptr, 0, &made, nullptr));
  expect_refused(straitCommGetAsyncError(comm, &state));
  expect_refused(straitCommAbort(comm));
  EXPECT_EQ(made, nullptr);
}

/// Communicators that a child makes itself must work.
void run_alone() {
  straitUniqueId id;
  straitComm_t own = nullptr;
  std::vector<std::int32_t> buffer;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  STRAIT_EXPECT_OK(straitCommInitRank(&own, 1, &id, 0, nullptr));
  STRAIT_EXPECT_OK(checked_all_reduce(own, 0, 1, 1000, 1, buffer));
  STRAIT_EXPECT_OK(straitCommDestroy(own));
}

/// Every rank forks a child that runs `child`; the rank must work meanwhile and afterwards.
void work_beside_children(const std::function<void(straitComm_t)>& child) {
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, ranks, report), part = nullptr;
    if (comm == nullptr) return;
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 1000, 0, buffer));
    const pid_t forked = fork_rank([&] { child(comm); });
    for (int i = 0; i < 20; ++i) STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 100'000, i, buffer));
    EXPECT_EQ(wait_for(forked, 10'000), 0);
    for (int slow = 0; slow < ranks; ++slow) {  // a rank that makes the others wait must not look as if it had left
      if (rank == slow) std::this_thread::sleep_for(milliseconds(60));
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    }
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, nullptr));
    STRAIT_EXPECT_OK(checked_all_reduce(part, rank, ranks, 100'000, 1, buffer));
    for (straitComm_t each : {part, comm}) STRAIT_EXPECT_OK(straitCommDestroy(each));
    report.completed.store(1);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.report(rank).completed.load(), 1u) << "rank " << rank;
}

TEST(ForkedChildren, DestroyWhatTheyInherit) {
  work_beside_children([](straitComm_t comm) { STRAIT_EXPECT_OK(straitCommDestroy(comm)); });
}

TEST(ForkedChildren, AreRefusedWhatTheyInherit) { work_beside_children(use_inherited); }

TEST(ForkedChildren, MakeTheirOwnBesideWhatTheyInherit) {
  work_beside_children([](straitComm_t comm) {
    run_alone();
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
    run_alone();
  });
}

/// The child inherits an open group with calls in it.
TEST(ForkedChildren, CannotEndAnInheritedGroup) {
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, ranks, report);
    if (comm == nullptr) return;
    std::int32_t value = 1;
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitAllReduce(&value, &value, 1, straitInt32, straitSum, comm, nullptr));
    const pid_t forked = fork_rank([] {
      expect_refused(straitGroupEnd());
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitGroupEnd());
    });
    EXPECT_EQ(wait_for(forked, 10'000), 0);
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(value, ranks);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
    report.completed.store(1);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.report(rank).completed.load(), 1u) << "rank " << rank;
}

}  // namespace
}  // namespace strait::testing
