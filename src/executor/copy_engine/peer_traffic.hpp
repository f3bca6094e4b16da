#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "executor/copy_engine/rounds.hpp"
#include "kernels/launch.hpp"

namespace strait::copy_engine {

/// What one rank sends to its peers in a call and receives from them, if each writes into the others' memory.
///  - Contributions go to the peer that adds up that part of a reduction, in rank order.
///  - Messages go to the peer's output. In an all-reduce and a reduce they are sums that the sender has computed.
struct PeerTraffic {
  struct Span {
    std::byte* data = nullptr;
    std::size_t bytes = 0;

    bool has_chunk(std::size_t chunk_bytes, std::uint32_t number) const { return number * chunk_bytes < bytes; }
    Span chunk(std::size_t chunk_bytes, std::uint32_t number) const {
      const std::size_t begin = number * chunk_bytes;
      return {data + begin, std::min(chunk_bytes, bytes - begin)};
    }
  };
  using Spans = std::array<Span, kernels::max_ranks>;

  Spans contributions;  ///< to each peer
  Span addends;         ///< this rank's own contribution to the part that it adds up
  /// Destination of the sum, which has the length of `addends`; null: the caller chooses it (place_sums()).
  std::byte* sums = nullptr;
  /// Messages to and from each peer. At [own rank]: data that is copied within this rank.
  Spans sends, receives;
  bool sends_sums = false;
  /// Whether this is a broadcast to several ranks, each of which passes on what it receives from the root.
  bool is_passed_on = false;
  /// In a broadcast: the rank whose data this rank passes on to the others.
  std::optional<std::uint32_t> relayed;
  /// Length of the longest message or contribution of any rank, so that all ranks cut alike.
  std::size_t longest_bytes = 0;

  /// Returns whether copy engines can carry the call. They cannot scale elements.
  static bool supports(const CopyCall& call);
  /// Returns the traffic of a supported call with at least one element.
  static PeerTraffic of(const CopyCall& call, std::uint32_t rank, std::uint32_t ranks);

  static bool has(const Spans& spans) {
    return std::any_of(spans.begin(), spans.end(), [](const Span& span) { return span.bytes != 0; });
  }
  bool adds() const { return addends.bytes != 0; }
  /// Sets where the sum that this rank computes for another rank is kept until it is sent.
  void place_sums(std::byte* place);
  /// Returns whether what is received from a peer overwrites what is sent to it.
  bool overwrites(std::uint32_t peer) const {
    return sends[peer].bytes != 0 && sends[peer].data == receives[peer].data;
  }
};

}  // namespace strait::copy_engine
