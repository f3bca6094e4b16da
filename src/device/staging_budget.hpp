#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace strait {

/// How the host memory that the ranks of a communicator pin on a host, all together, is divided. If only one of
/// reducers and windows is wanted, it gets the share of both. Arenas always exist, with the same share.
struct StagingBudget {
  std::size_t arenas_bytes = 0;    ///< arenas of all ranks, through which kernels exchange data
  std::size_t reducers_bytes = 0;  ///< memory in which CPU threads add up
  std::size_t windows_bytes = 0;   ///< memory for chunks that copy engines carry

  /// Of 128 MB arenas get 60, and reducers and windows 64; the rest is for control words and partly filled pages.
  static constexpr StagingBudget of(std::size_t bytes, bool has_reducers, bool has_windows) {
    StagingBudget budget{bytes / 32 * 15, 0, 0};
    const std::size_t each = bytes / 2 / (has_reducers && has_windows ? 2 : 1);
    if (has_reducers) budget.reducers_bytes = each;
    if (has_windows) budget.windows_bytes = each;
    return budget;
  }
  constexpr std::size_t total_bytes() const { return arenas_bytes + reducers_bytes + windows_bytes; }

  /// Returns the least memory with which slots hold chunks that are worth a thread block, even if islands halve the
  /// arenas, and in which reducers and windows have room: 96 MB for 16 ranks.
  static constexpr std::size_t least_bytes(std::uint32_t ranks) { return std::size_t{ranks} * 6 << 20; }
  /// Returns the memory for which the next communicator of a host is laid out, if all of them together are to stay
  /// within `bytes`. The first one gets all of it. A later one is to take less than half of what is left, so that the
  /// next one finds some: if it has arenas alone, these take 15/32 of what they are given; if it has others too
  /// (`has_others`: reducers or windows), it is given half. No communicator gets less than least_bytes(), even if that
  /// exceeds the bound.
  static constexpr std::size_t left(std::size_t bytes, std::size_t pinned_bytes, std::uint32_t ranks, bool has_others) {
    if (pinned_bytes == 0) return bytes;
    const std::size_t rest = bytes - std::min(bytes, pinned_bytes);
    return std::max(has_others ? rest / 2 : rest, least_bytes(ranks));
  }
};

}  // namespace strait
