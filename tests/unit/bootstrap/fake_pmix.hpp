#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

namespace strait::testing {

/// What the stand-in for libpmix.so.2 does: a launcher's server for a job of one rank.
struct FakePmix {
  std::mutex mutex;
  std::condition_variable changed;
  bool init_hangs = false, finalize_hangs = false;
  int open = 0;      ///< calls of PMIx_Init less those of PMIx_Finalize
  std::string text;  ///< what was put last, whatever its key
};
FakePmix& fake_pmix();

}  // namespace strait::testing
