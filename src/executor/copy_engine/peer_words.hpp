#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"

namespace strait::copy_engine {

/// The layout of the words by which ranks that copy into one another's memory (PeerCopies) tell their progress. They
/// are in host memory that all ranks share, so that the host can end a stream's wait. Each rank has a region of those
/// words that its own streams wait for, and that others write. (Words for which its kernel waits are in its GPU's
/// memory, because the kernel polls them.) All words count the chunks of one call from 0, so that a captured call can
/// be replayed: between calls every word is 0, and each rank clears its own (PeerCopies says when). Offsets are in
/// bytes.
struct PeerWords {
  std::uint32_t ranks = 0;

  /// Chunks between two ranks alternate between this many streams, each of which has its own words.
  static constexpr std::uint32_t lanes = kernels::copy_lanes;
  static constexpr std::size_t region_bytes = 1024;
  static constexpr std::uint32_t most = ~0u >> 1;  ///< ends every wait except those for begun()

  constexpr std::size_t region(std::uint32_t rank) const { return region_bytes * rank; }
  /// The number of messages for this rank's output that `from` has put into its window. In place: the number of chunks
  /// that `from` has put into this rank's output for it to pass on, or that `from` has saved so that this rank may
  /// overwrite them.
  constexpr std::size_t arrived_count(std::uint32_t rank, std::uint32_t from, std::uint32_t lane) const {
    return word(rank, from * lanes + lane);
  }
  /// The number of this rank's messages that `by` has taken out of its window. With `by` == `rank`: the number of
  /// chunks that this rank can pass on.
  constexpr std::size_t taken_count(std::uint32_t rank, std::uint32_t by, std::uint32_t lane) const {
    return word(rank, (kernels::max_ranks + by) * lanes + lane);
  }
  /// The number of chunks of its slice that `by` has added up.
  constexpr std::size_t added_count(std::uint32_t rank, std::uint32_t by) const {
    return word(rank, 2 * kernels::max_ranks * lanes + by);
  }
  /// The hash of the call that `peer` has begun.
  constexpr std::size_t begun(std::uint32_t rank, std::uint32_t peer) const { return word(rank, begun_word + peer); }
  /// 1 if `peer` is done with the call.
  constexpr std::size_t done(std::uint32_t rank, std::uint32_t peer) const { return word(rank, done_word + peer); }
  /// The hash of the call that is running on this rank's streams, which write it; 0: none. The host reads it.
  constexpr std::size_t running(std::uint32_t rank) const { return done(rank, rank); }
  /// Set by the host when it looks, and cleared together with begun(). If the host finds it cleared, a call has ended
  /// since it last looked.
  constexpr std::size_t looked_at(std::uint32_t rank) const { return begun(rank, rank); }
  /// The number of messages that this rank has put into the window of `to`, if what it receives from there overwrites
  /// them.
  constexpr std::size_t sent_count(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, sent_word + to * lanes + lane);
  }
  constexpr std::size_t size_bytes() const { return region(ranks); }

 private:
  static constexpr std::uint32_t words = region_bytes / sizeof(std::uint32_t);
  static constexpr std::uint32_t begun_word = (2 * lanes + 1) * kernels::max_ranks;
  static constexpr std::uint32_t done_word = begun_word + kernels::max_ranks;
  static constexpr std::uint32_t sent_word = done_word + kernels::max_ranks;
  static_assert(sent_word + kernels::max_ranks * lanes <= words);
  static_assert(kernels::max_ranks % 2 == 0 && lanes == 2, "words are cleared in pairs");
  constexpr std::size_t word(std::uint32_t rank, std::uint32_t number) const {
    return region(rank) + number * sizeof(std::uint32_t);
  }
};

}  // namespace strait::copy_engine
