#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/copy_engine/peer_words.hpp"

namespace strait::copy_engine {

/// Where the words of messages between ranks lie (PeerMessages): behind PeerWords, in the same memory, and likewise
/// each rank has a region of those that its own streams wait for. Two ranks have some for each direction and lane,
/// whoever else there is. Between messages every word is 0; each rank clears its own. Offsets are in bytes.
struct MessageWords {
  std::uint32_t ranks = 0;

  static constexpr std::uint32_t lanes = PeerWords::lanes;

  /// Of the sender `rank`. The hash of the message that its stream has come to, which the host reads; it marks that it
  /// has looked in the word behind.
  constexpr std::size_t sending(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, to, lane, 0);
  }
  /// The hash of the message that `to` is ready to receive.
  constexpr std::size_t ready(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, to, lane, 2);
  }
  /// Chunks that `to` has taken out of its window, as far as the sender waits for that.
  constexpr std::size_t taken(std::uint32_t rank, std::uint32_t to, std::uint32_t lane) const {
    return word(rank, to, lane, 3);
  }
  /// Of the receiver `rank`, as sending().
  constexpr std::size_t receiving(std::uint32_t rank, std::uint32_t from, std::uint32_t lane) const {
    return word(rank, from, lane, 4);
  }
  /// Chunks that `from` has put into the window.
  constexpr std::size_t arrived(std::uint32_t rank, std::uint32_t from, std::uint32_t lane) const {
    return word(rank, from, lane, 6);
  }
  /// Of all that ranks share, PeerWords included.
  constexpr std::size_t size_bytes() const { return region(ranks); }

 private:
  static constexpr std::uint32_t words = 8;  ///< of a peer and lane; cleared in pairs
  constexpr std::size_t region(std::uint32_t rank) const {
    return PeerWords{ranks}.size_bytes() + sizeof(std::uint32_t) * words * lanes * kernels::max_ranks * rank;
  }
  constexpr std::size_t word(std::uint32_t rank, std::uint32_t peer, std::uint32_t lane, std::uint32_t number) const {
    return region(rank) + sizeof(std::uint32_t) * ((peer * lanes + lane) * words + number);
  }
};

}  // namespace strait::copy_engine
