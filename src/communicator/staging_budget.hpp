#pragma once

#include <cstddef>

namespace strait {

/// How the host memory that the ranks of a communicator pin on a host, all together, is shared out. What is not wanted
/// leaves its share to the other, but for the arenas, which are always there.
struct StagingBudget {
  std::size_t arenas_bytes = 0;    ///< of all ranks: what kernels trade through
  std::size_t reducers_bytes = 0;  ///< what CPU threads add up
  std::size_t windows_bytes = 0;   ///< what copy engines carry

  /// 60 MB of 128, and 64 for the others; the rest is for words and pages that are not full.
  static constexpr StagingBudget of(std::size_t bytes, bool has_reducers, bool has_windows) {
    StagingBudget budget{bytes / 32 * 15, 0, 0};
    const std::size_t each = bytes / 2 / (has_reducers && has_windows ? 2 : 1);
    if (has_reducers) budget.reducers_bytes = each;
    if (has_windows) budget.windows_bytes = each;
    return budget;
  }
};

}  // namespace strait
