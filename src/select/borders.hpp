#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
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

/// In place of a number of thread blocks: copy engines carry what they can (STRAIT_NO_SMS).
inline constexpr std::uint32_t no_sms = 511;
/// Thread blocks of a kernel, as `max_sms` bounds them. Where no SMs are to be used, what has to be added up takes the
/// fewest that keep copy engines busy (four H200), and what copy engines cannot carry takes one.
constexpr std::uint32_t blocks_of(std::uint32_t max_sms, bool adds) {
  return max_sms != no_sms ? max_sms : adds ? 4 : 1;
}

/// From which size of the larger buffer on copy engines carry calls; 0: none.
struct CopyBorders {
  std::size_t sums_bytes = 0;       ///< an all-reduce, a reduce: it has as many steps, and moves no more
  std::size_t scattered_bytes = 0;  ///< a reduce-scatter
  std::size_t others_bytes = 0;     ///< what else is no message
  std::size_t messages_bytes = 0;   ///< of a message its own bytes

  static constexpr CopyBorders all_from(std::size_t bytes) { return {bytes, bytes, bytes, bytes}; }
  constexpr std::size_t of(Collective collective) const {
    if (collective == Collective::all_reduce || collective == Collective::reduce) return sums_bytes;
    if (collective == Collective::send_recv) return messages_bytes;
    return collective == Collective::reduce_scatter ? scattered_bytes : others_bytes;
  }
};
/// With few thread blocks kernels move less than copy engines: from which sizes on, two and four H200 have shown. Where
/// no SMs are to be used, whatever takes none goes by copy engines. Messages do where they are asked to only: on
/// streams that share a hardware queue, a rank that posts one by one what its peer posts as a group could wait for
/// ever. Of GPUs that reach one another's memory.
CopyBorders copy_borders_of(std::uint32_t max_sms);

/// What GPUs that PCIe joins give while all exchange with all, as far as it is known when ranks join.
struct ExchangeRates {
  double gbps = 0;          ///< of each GPU, each way; 0: unknown
  double sums_gbps = 0;     ///< what CPU threads add up for all of them together, bytes of all sources; 0: not measured
  bool is_settled = false;  ///< the user says so: ranks need not measure it
  double measured_gbps = 0;  ///< when the communicator was made (measured_rate.hpp); 0: it was not
};
/// For what unknown rates are taken: of PCIe Gen5, 16 lanes, up to the host.
inline constexpr double unknown_exchange_gbps = 40;

/// Exact all-reduces from this length on are added up by CPU threads; 0: none. Through the GPUs every message comes
/// down almost twice, 2(n-1)/n times, and once where CPUs add. Taken where that promises much, for a promise of 1.5 has
/// not been kept by four H200 (docs/gpus.md), and only where both rates were measured, with all `ranks` at work.
/// `meeting`: how many have parts of the same sums, of which the length counts: all ranks, or one of each island.
/// `crossing`: how many of the ranks do so at a time: all, or only the first ones of islands, which may have all of the
/// links, but no more threads each.
std::size_t cpu_reduce_border_bytes(std::uint32_t meeting, std::uint32_t crossing, std::uint32_t ranks,
                                    const ExchangeRates& rates);

/// Threads of a rank that adds up, of so many `wanted`, and of all ranks together `most`: its share as one of all
/// ranks, for these need their cores while they wait (six ranks, four islands: two were slower); one at least, if there
/// are enough for all that are `crossing`.
std::uint32_t cpu_reducers_of_each(std::uint32_t wanted, std::uint32_t most, std::uint32_t ranks, std::size_t crossing);

}  // namespace strait
