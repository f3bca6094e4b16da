// Smaller communicators, which are made only by the ranks that remain.
#include <gmock/gmock.h>

#include <numeric>
#include <string>
#include <vector>

#include "api/values.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

/// A smaller communicator keeps the order of the ranks, is made by its members alone, outlives its parent, and can be
/// shrunk itself.
void check_shrink(straitComm_t comm, int rank, int ranks) {
  const int excluded[] = {1, ranks - 1, 1};
  straitComm_t smaller = comm, alone = nullptr;
  if (rank == 1 || rank == ranks - 1) {
    EXPECT_EQ(straitCommShrink(comm, excluded, 3, &smaller, nullptr), straitInvalidArgument);
    EXPECT_EQ(smaller, comm);
    return check_sum(comm, 10, 8);
  }
  STRAIT_EXPECT_OK(straitCommShrink(comm, excluded, 3, &smaller, nullptr));
  int own = -1, count = 0;
  STRAIT_EXPECT_OK(straitCommUserRank(smaller, &own));
  STRAIT_EXPECT_OK(straitCommCount(smaller, &count));
  EXPECT_EQ(own, rank == 0 ? 0 : rank - 1);
  EXPECT_EQ(count, ranks - 2);
  check_sum(smaller, 3000, 7);
  check_sum(comm, 10, 8);
  if (own == 0) {
    std::vector<int> others(static_cast<std::size_t>(count) - 1);
    std::iota(others.begin(), others.end(), 1);
    STRAIT_EXPECT_OK(straitCommShrink(smaller, others.data(), count - 1, &alone, nullptr));
    check_sum(alone, 10, 9);
  }
  check_sum(smaller, 3000, 10);
  STRAIT_EXPECT_OK(straitCommDestroy(smaller));
  STRAIT_EXPECT_OK(straitCommDestroy(alone));
}
TEST(Shrink, Threads) { run_as_threads(5, check_shrink); }
TEST(Shrink, Processes) { run_as_processes(4, check_shrink); }

TEST(Shrink, RefusesBadArguments) {
  run_as_threads(1, [](straitComm_t comm, int, int) {
    straitComm_t smaller = comm;
    const int beyond = 1, below = -1;
    for (const int* list : {&beyond, &below}) {
      EXPECT_EQ(straitCommShrink(comm, list, 1, &smaller, nullptr), straitInvalidArgument);
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("straitCommShrink: rank " + std::to_string(*list)));
    }
    EXPECT_EQ(straitCommShrink(comm, nullptr, 1, &smaller, nullptr), straitInvalidArgument);
    EXPECT_EQ(straitCommShrink(comm, &beyond, -1, &smaller, nullptr), straitInvalidArgument);
    EXPECT_EQ(straitCommShrink(comm, nullptr, 0, nullptr, nullptr), straitInvalidArgument);
    EXPECT_EQ(straitCommShrink(nullptr, nullptr, 0, &smaller, nullptr), straitInvalidArgument);
    EXPECT_EQ(smaller, comm);
    STRAIT_EXPECT_OK(straitCommShrink(comm, nullptr, 0, &smaller, nullptr));
    check_sum(smaller, 10, 1);
    STRAIT_EXPECT_OK(straitCommDestroy(smaller));
  });
}

}  // namespace
}  // namespace strait::testing
