#pragma once

#include <vector>

#include "support/ranks.hpp"

namespace strait::testing {

/// Ranks of this thread, each with a GPU.
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

}  // namespace strait::testing
