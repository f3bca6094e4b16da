#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "executor/copy_engine/rounds.hpp"
#include "kernels/launch.hpp"

namespace strait::copy_engine {

/// What one rank gives its peers in a call, and gets from them, where each writes into the others' memory.
///  - Contributions go to the peer that adds up that part of a reduction, in rank order.
///  - Messages go to the peer's output; in an all-reduce and a reduce they are what the sender has added up.
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

  Spans contributions;        ///< to each peer
  Span addends;               ///< this rank's own contribution to what it adds up
  std::byte* sums = nullptr;  ///< where that goes, of the same length; null: the caller finds a place (place_sums())
  Spans sends, receives;      ///< messages to and from each peer; [own rank]: what is copied here
  bool sends_sums = false;
  bool is_passed_on = false;             ///< of a broadcast to several: each of them sends on what it gets of the root
  std::optional<std::uint32_t> relayed;  ///< what comes from this rank is what is sent to the others, of a broadcast
  std::size_t longest_bytes = 0;         ///< of any rank's messages and contributions: all ranks cut alike

  /// Whether copy engines can do it: they scale nothing.
  static bool supports(const CopyCall& call);
  /// Of a supported call with at least one element.
  static PeerTraffic of(const CopyCall& call, std::uint32_t rank, std::uint32_t ranks);

  static bool has(const Spans& spans) {
    return std::any_of(spans.begin(), spans.end(), [](const Span& span) { return span.bytes != 0; });
  }
  bool adds() const { return addends.bytes != 0; }
  /// What this rank adds up for another one lies there until it is sent.
  void place_sums(std::byte* place);
  /// Whether what comes from a peer is written over what goes to it.
  bool overwrites(std::uint32_t peer) const {
    return sends[peer].bytes != 0 && sends[peer].data == receives[peer].data;
  }
};

}  // namespace strait::copy_engine
