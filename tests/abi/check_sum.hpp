#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "abi/abi_ranks.hpp"

namespace strait::testing {

/// Checks an all-reduce whose result is right only if exactly `members` take part, each with its own `rank`.
inline void check_sum(ncclComm_t comm, int rank, const std::vector<int>& members) {
  constexpr std::size_t count = 1001;
  std::vector<std::int32_t> mine(count), sum(count, -1);
  for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<int>(i) * 100 + rank;
  NCCL_EXPECT_OK(ncclAllReduce(mine.data(), sum.data(), count, ncclInt32, ncclSum, comm, nullptr));
  const int ranks = static_cast<int>(members.size());
  const int of_ranks = std::accumulate(members.begin(), members.end(), 0);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], static_cast<int>(i) * 100 * ranks + of_ranks) << i;
}

inline std::vector<int> all_of(int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace strait::testing
