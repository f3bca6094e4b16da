#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"

/// The message sizes at which GPU ranks switch from one protocol or algorithm to another.
namespace strait {

struct Borders {
  std::size_t packets_bytes = 0;  ///< messages up to this size travel as packets, where lines are not used
  /// All-reduces and broadcasts up to this size take one hop, which sends more bytes than two hops.
  std::size_t one_hop_bytes = 0;
  std::size_t one_hop_reduce_bytes = 0;  ///< reduces up to this size take one hop
  /// An all-reduce of which each lane carries at least this much is cut into rounds, so that its two hops overlap.
  std::size_t min_overlap_lane_bytes = 0;
  /// The fixed cost of a round: the bytes that a link to the host carries while a round begins and ends.
  std::size_t round_cost_bytes = 0;
  /// The delay from the start of one group of blocks to that of the next, in long calls in bulk through host memory.
  std::uint32_t stagger_ns = 0;
  std::uint32_t blocks = 0;       ///< thread blocks of a call in bulk through host memory
  std::size_t encoded_bytes = 0;  ///< calls in a wire format with at least this many bytes are encoded as they are sent

  friend bool operator==(const Borders&, const Borders&) = default;
};

/// Returns the borders of `ranks` GPUs that exchange data through an arena of this kind. Deterministic, so all ranks
/// compute the same from the same arguments.
///
/// At a border, the time for the bytes that one way saves equals what it costs more apart from bytes. These fixed costs
/// were measured on four H200 by NVLink and through host memory (packets through host memory on four H100), so on
/// slower links the borders shrink with the rate. The borders of one hop also shrink with the bytes that one hop sends
/// in excess of two hops to more than four ranks. No faster rate raises a border, because machines faster than these
/// have not been measured. The border of packets bounds the bytes that a rank receives from all peers together, so the
/// border of one message depends on the number of peers (two H100 confirm this).
///
/// Rounds that let two hops through host memory overlap are as long on slow links as on fast ones: what a round costs
/// is the wait until the link has carried what all blocks have sent before. Where eight ranks had 5.5 GB/s each,
/// shorter rounds made all-reduces of 256 KB take two thirds longer.
///
/// Delays grow as rates fall: they are a part of the time in which the link carries a call. Where eight ranks had 5.5
/// GB/s each, calls of 1 MB took up to 8% less time with the delay of their rate.
///
/// Thread blocks that wait for a narrow link take SMs from the program without any gain: where ten ranks had 4.4 GB/s
/// each, two blocks were as fast as six within 4%. So their number shrinks with the rate, too.
///
/// `gbps` is ExchangeRates::gbps of GPUs that PCIe joins. If it is 0 (unknown), the rate of the measured machine is
/// assumed.
Borders borders_of(kernels::ArenaKind kind, std::uint32_t ranks, double gbps = 0);

}  // namespace strait
