// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/network.cuh"
#include "kernels/network_messages.cuh"
#include "support/emulated_network.hpp"

namespace strait::testing {

void run_network(const kernels::NetworkExchange& argument, std::uint32_t seed) {
  constexpr std::uint32_t threads = 64;
  kernels::NetworkExchange own = argument;
  std::uint32_t finished = 0;
  own.ring.finished = &finished;
  std::vector<std::jthread> running;
  for (std::uint32_t index = 0; index < own.call.blocks; ++index)
    running.emplace_back([&own, index, seed] {
      run_threads(threads, own.call.blocks, index, seed, [&] {
        if (own.call.collective == Collective::send_recv)
          kernels::network_messages(own);
        else
          kernels::network_exchange(own);
      });
    });
  running.clear();
  EXPECT_EQ(std::atomic_ref(finished), own.call.blocks);
}

}  // namespace strait::testing
