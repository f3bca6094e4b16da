#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"

namespace strait::staged {

/// Where the words lie by which ranks that copy into one another's memory (PeerCopies) tell how far they are: in host
/// memory that all of them share, so that the host can end a stream's wait. Each rank has a region of those words that
/// its own streams wait for; others write them. (What its kernel waits for lies in its GPU's memory, because it polls.)
/// All count chunks of one call from 0, so that a captured
/// call can be replayed; a rank clears its region between two meetings of all ranks at the beginning of a call.
/// Offsets are in bytes.
struct PeerWords {
  std::uint32_t ranks = 0;

  /// Chunks in flight between two ranks take turns on this many streams, each with a word of its own.
  static constexpr std::uint32_t lanes = kernels::copy_lanes;
  static constexpr std::size_t region_bytes = 1024;
  static constexpr std::uint32_t most = ~0u >> 1;  ///< what ends every wait

  constexpr std::size_t region(std::uint32_t rank) const { return region_bytes * rank; }
  /// Messages for this rank's output that `from` has put into its window; of `from` == `rank`: that this rank has put
  /// into the others'.
  constexpr std::size_t arrived(std::uint32_t rank, std::uint32_t from, std::uint32_t lane) const {
    return word(rank, from * lanes + lane);
  }
  /// This rank's messages that `by` has taken out of its window; of `by` == `rank`: what this rank is to pass on.
  constexpr std::size_t taken(std::uint32_t rank, std::uint32_t by, std::uint32_t lane) const {
    return word(rank, (kernels::max_ranks + by) * lanes + lane);
  }
  /// Chunks of its slice that `by` has added up.
  constexpr std::size_t added(std::uint32_t rank, std::uint32_t by) const {
    return word(rank, 2 * kernels::max_ranks * lanes + by);
  }
  /// Not 0: a call is under way on this rank's streams. Written by them; the host reads it.
  constexpr std::size_t running(std::uint32_t rank) const { return word(rank, words - 1); }
  /// As many zeros as a region has bytes.
  constexpr std::size_t zeros() const { return region(ranks); }
  constexpr std::size_t size_bytes() const { return region(ranks + 1); }

 private:
  static constexpr std::uint32_t words = region_bytes / sizeof(std::uint32_t);
  static_assert(2 * kernels::max_ranks * lanes + kernels::max_ranks < words);
  constexpr std::size_t word(std::uint32_t rank, std::uint32_t number) const {
    return region(rank) + number * sizeof(std::uint32_t);
  }
};

}  // namespace strait::staged
