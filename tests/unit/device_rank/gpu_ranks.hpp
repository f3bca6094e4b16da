#pragma once

#include <thread>
#include <vector>

#include "fake_device_rank.hpp"
#include "support/ranks.hpp"

namespace strait::testing {

/// Creates the communicators of ranks of this thread, each with a GPU.
inline std::vector<straitComm_t> join_in_a_group(int ranks) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<straitComm_t> comms(static_cast<std::size_t>(ranks));
  STRAIT_EXPECT_OK(straitGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    straitConfig_t config = test_config();
    config.device = rank;
    STRAIT_EXPECT_OK(straitCommInitRank(&comms[static_cast<std::size_t>(rank)], ranks, &id, rank, &config));
  }
  STRAIT_EXPECT_OK(straitGroupEnd());
  return comms;
}

/// Runs `body` on two GPU ranks, each a thread, which compare their calls before each launch.
inline void run_two_ranks(const RankBody& body) {
  Meeting meeting(2);
  fake_gpu.launch_error.clear();
  fake_gpu.captures = false;
  fake_gpu.looks_at_peers = true;
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        straitConfig_t config = test_config();
        config.device = rank;
        straitComm_t comm = nullptr;
        STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, rank, &config));
        body(comm, rank, 2);
        meet();
        STRAIT_EXPECT_OK(straitCommDestroy(comm));
      });
  }
  fake_gpu.looks_at_peers = false;
}

}  // namespace strait::testing
