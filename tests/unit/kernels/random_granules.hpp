#pragma once

// Must be the first include: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "kernels/arithmetic.cuh"
#include "support/random_data.hpp"

namespace strait::kernels {

template <DataType type>
using Elements = std::array<spec::ElementType<type>, elements_per_granule<type>>;

/// Calls `check(a, b)` with the elements of pairs of random granules, until it fails.
template <DataType type, class Check>
void check_random(Check&& check) {
  constexpr std::size_t granules = 2000;
  const auto a = testing::random_elements(type, granules * elements_per_granule<type>, 1);
  const auto b = testing::random_elements(type, granules * elements_per_granule<type>, 2);
  for (std::size_t i = 0; i < granules; ++i) {
    Elements<type> first, second;
    std::memcpy(&first, a.data() + i * sizeof first, sizeof first);
    std::memcpy(&second, b.data() + i * sizeof second, sizeof second);
    check(first, second);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace strait::kernels
