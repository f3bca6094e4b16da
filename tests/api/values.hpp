#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/random_data.hpp"
#include "support/ranks.hpp"

namespace strait::testing {

/// Returns numbers that differ between seeds and positions, so that a misplaced or stale block is noticed.
inline std::vector<std::int32_t> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>(mix(seed * 1'000'003 + i) >> 40);
  return values;
}

/// Returns the sum over all ranks of numbers(count, seed + rank).
inline std::vector<std::int32_t> sum_of_numbers(std::size_t count, std::uint64_t seed, int ranks) {
  std::vector<std::int32_t> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = numbers(count, seed + static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

/// Checks an all-reduce of numbers of all the communicator's ranks.
inline void check_sum(straitComm_t comm, std::size_t count, std::uint64_t seed) {
  int rank = -1, ranks = 0;
  STRAIT_EXPECT_OK(straitCommUserRank(comm, &rank));
  STRAIT_EXPECT_OK(straitCommCount(comm, &ranks));
  const auto mine = numbers(count, seed + static_cast<std::uint64_t>(rank));
  std::vector<std::int32_t> sum(count);
  STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), count, straitInt32, straitSum, comm, nullptr));
  EXPECT_EQ(sum, sum_of_numbers(count, seed, ranks));
}

}  // namespace strait::testing
