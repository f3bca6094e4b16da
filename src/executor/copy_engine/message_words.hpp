#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/copy_engine/peer_words.hpp"

namespace strait::copy_engine {

/// The layout of the words by which messages between ranks are ordered (PeerMessages). They follow PeerWords in the
/// same memory. As there, each rank has a region of those words that its own streams wait for. Each pair of ranks has
/// its own words for each direction and lane. Between messages every word is 0; each rank clears its own. Offsets are
/// in bytes.
struct MessageWords {
  std::uint32_t ranks = 0;

  static constexpr std::uint32_t lanes = PeerWords::lanes;

  /// In the sender `rank`'s region: the hash of the message that its stream has reached, for the host to read. In the
  /// next word the host marks that it has looked.
  constexpr std::size_t sending(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, to, lane, 0);
  }
  /// In the sender's region: the hash of the message that `to` is ready to receive.
  constexpr std::size_t ready(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, to, lane, 2);
  }
  /// In the sender's region: the number of chunks that `to` has taken out of its window, as far as the sender waits for
  /// this.
  constexpr std::size_t taken_count(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, to, lane, 3);
  }
  /// The counterpart of sending() in the receiver `rank`'s region.
  constexpr std::size_t receiving(std::uint32_t rank, std::uint32_t from, std::uint32_t lane) const {
    return word(rank, from, lane, 4);
  }
  /// In the receiver's region: the number of chunks that `from` has put into the window.
  constexpr std::size_t arrived_count(std::uint32_t rank, std::uint32_t from, std::uint32_t lane) const {
    return word(rank, from, lane, 6);
  }
  /// Returns the size of all shared words, including PeerWords.
  constexpr std::size_t size_bytes() const { return region(ranks); }

 private:
  static constexpr std::uint32_t words = 8;  ///< of each peer and lane; cleared in pairs
  constexpr std::size_t region(std::uint32_t rank) const {
    return PeerWords{ranks}.size_bytes() + sizeof(std::uint32_t) * words * lanes * kernels::max_ranks * rank;
  }
  constexpr std::size_t word(std::uint32_t rank, std::uint32_t peer, std::uint32_t lane, std::uint32_t number) const {
    return region(rank) + sizeof(std::uint32_t) * ((peer * lanes + lane) * words + number);
  }
};

}  // namespace strait::copy_engine
