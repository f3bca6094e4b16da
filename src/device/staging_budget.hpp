#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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
  constexpr std::size_t total_bytes() const { return arenas_bytes + reducers_bytes + windows_bytes; }

  /// With this slots hold chunks that are worth a block, also where islands halve the arenas, and reducers and windows
  /// have room: 96 MB for 16 ranks.
  static constexpr std::size_t least_bytes(std::uint32_t ranks) { return std::size_t{ranks} * 6 << 20; }
  /// What the next communicator of a host is laid out for, where all of them are to keep within `bytes`. The first one
  /// has all of it. Each later one takes less than half of what is left, so that the next finds some: the arenas do so
  /// by themselves. None goes below the least, though it go beyond the bound.
  static constexpr std::size_t left(std::size_t bytes, std::size_t pinned_bytes, std::uint32_t ranks, bool has_others) {
    if (pinned_bytes == 0) return bytes;
    const std::size_t rest = bytes - std::min(bytes, pinned_bytes);
    return std::max(has_others ? rest / 2 : rest, least_bytes(ranks));
  }
};

}  // namespace strait
