#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/random_data.hpp"

namespace strait::testing {

/// Numbers that differ between seeds and places, so that a misplaced or stale block shows.
inline std::vector<std::int32_t> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>(mix(seed * 1'000'003 + i) >> 40);
  return values;
}

/// What an all-reduce (sum) of numbers(count, seed + rank) gives.
inline std::vector<std::int32_t> sum_of_numbers(std::size_t count, std::uint64_t seed, int ranks) {
  std::vector<std::int32_t> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = numbers(count, seed + static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

}  // namespace strait::testing
