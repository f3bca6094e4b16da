// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "support/emulated_async.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <variant>

#include "kernels/piped_kernels.cuh"
#include "support/emulated_launch.hpp"

namespace strait::testing {

/// Uses fewer threads than a GPU would: the kernels take any number of warps that has at least one thread for each rank
/// on each of a block's lanes.
void run_block(const DeviceLaunch& launch, std::uint32_t index, DataType type, std::uint32_t seed) {
  const std::uint32_t managers =
      std::visit([](const auto& argument) { return argument.ring.ranks * argument.width; }, launch.argument);
  const std::uint32_t threads = launch.prompt  ? launch.threads  // one warp per piece
                                : launch.piped ? std::min(launch.threads, kernels::piped_mover_threads + 32)
                                               : std::min(launch.threads, std::max((managers + 31) / 32 * 32, 64u));
  run_threads(threads, launch.blocks, index, seed,
              [&] { std::visit([&](const auto& argument) { run_thread(launch, argument, type); }, launch.argument); });
}

void run_launches(std::vector<DeviceLaunch> launches, DataType type, std::atomic<std::uint32_t>& seed, bool together) {
  std::uint32_t finished = 0, blocks = 0;
  for (DeviceLaunch& launch : launches) {
    std::visit([&](auto& argument) { argument.ring.finished = &finished; }, launch.argument);
    std::vector<std::jthread> running;
    for (std::uint32_t index = 0; index < launch.blocks; ++index) {
      running.emplace_back([&launch, index, type, now = ++seed] { run_block(launch, index, type, now); });
      if (!together) running.clear();
    }
    running.clear();
    EXPECT_EQ(std::atomic_ref(finished), blocks += launch.blocks);
  }
}

void run_launch(AggregateLaunch launch, std::atomic<std::uint32_t>& seed) {
  std::uint32_t finished = 0;
  launch.argument.ring.finished = &finished;
  for (std::uint32_t index = 0; index < launch.blocks; ++index) run_block(launch, index, ++seed);
  EXPECT_EQ(std::atomic_ref(finished), launch.blocks);
}

}  // namespace strait::testing
