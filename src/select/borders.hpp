#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"

/// The lengths of messages at which ranks on GPUs go from one way of carrying them to another.
namespace strait {

struct Borders {
  std::size_t packets_bytes = 0;         ///< messages up to this as packets, where there are no lines
  std::size_t one_hop_bytes = 0;         ///< all-reduces and broadcasts up to this in one hop, which sends more
  std::size_t one_hop_reduce_bytes = 0;  ///< reduces likewise
  std::size_t overlap_bytes = 0;  ///< of an all-reduce, slices of so many a lane and more are cut so that hops overlap
  std::size_t round_bytes = 0;    ///< what a link to the host carries while a round begins and ends
  std::uint32_t blocks = 0;       ///< thread blocks of a call in bulk through host memory
  std::size_t encoded_bytes = 0;  ///< calls in a wire format are encoded on their way from this on

  friend bool operator==(const Borders&, const Borders&) = default;
};

/// What links give decides: each border is where the bytes that one way saves take as long as what it costs apart from
/// bytes. The latter was measured on four H200 by NVLink and through host memory, packets and one hop there on four
/// H100; from there borders go down with the rate, and with the bytes that one hop sends to more than four ranks. They
/// never go up: what is faster than those machines has not been measured. That of packets is of all that a rank takes,
/// so it goes by the number of peers (two H100 have shown that, too). Thread blocks that wait for a narrow link keep
/// the program from its SMs and bring nothing: where ten ranks had 4.4 GB/s each, two blocks were as fast as six within
/// 4%. `gbps`: ExchangeRates, of PCIe; 0: unknown, taken as that of the machine measured. All ranks get the same of the
/// same arguments.
Borders borders_of(kernels::ArenaKind kind, std::uint32_t ranks, double gbps = 0);

}  // namespace strait
