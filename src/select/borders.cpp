#include "select/borders.hpp"

#include <algorithm>

namespace strait {
namespace {

/// What was measured, on four ranks, and what their links gave.
struct Measured {
  double gbps;
  Borders borders;
};
constexpr std::size_t kb = 1 << 10, mb = 1 << 20;
constexpr double pcie_gbps = unknown_exchange_gbps;
constexpr Measured between_peers{390, {32 * kb, 320 * kb, 768 * kb, 12 * kb, 0, kernels::max_lanes, 16 * mb}};
constexpr Measured through_host{pcie_gbps,
                                {80 * kb, 40 * kb, 384 * kb, 32 * kb, 240 * kb, kernels::max_lanes, 512 * kb}};
constexpr std::uint32_t least_blocks = 8;
constexpr std::uint32_t measured_ranks = 4;

/// Bytes that the busiest rank takes in one hop beyond those of two, for each byte of the message.
double excess_of_all_reduce(std::uint32_t ranks) {
  const double n = ranks;
  return (n - 1) - 2 * (n - 1) / n;
}
double excess_of_reduce(std::uint32_t ranks) { return ranks - 2.0; }

/// The share of the border of four ranks that so many have.
double share_of(double (*excess)(std::uint32_t), std::uint32_t ranks) {
  return ranks <= measured_ranks ? 1 : excess(measured_ranks) / excess(ranks);
}

std::size_t scaled(std::size_t bytes, double by) { return static_cast<std::size_t>(static_cast<double>(bytes) * by); }

}  // namespace

Borders borders_of(kernels::ArenaKind kind, std::uint32_t ranks, double gbps) {
  const Measured& measured = kind == kernels::ArenaKind::host ? through_host : between_peers;
  const double pcie = std::min(gbps > 0 ? gbps : pcie_gbps, pcie_gbps);
  const double own = kind == kernels::ArenaKind::nvlink ? measured.gbps : pcie;
  const double slower = own / measured.gbps;
  const Borders& four = measured.borders;
  const double messages = std::max(ranks, 2u) - 1;  // that a rank takes
  return {.packets_bytes = scaled(four.packets_bytes, pcie / pcie_gbps * (measured_ranks - 1) / messages),
          .one_hop_bytes = scaled(four.one_hop_bytes, slower * share_of(excess_of_all_reduce, ranks)),
          .one_hop_reduce_bytes = scaled(four.one_hop_reduce_bytes, slower * share_of(excess_of_reduce, ranks)),
          .overlap_bytes = scaled(four.overlap_bytes, slower),
          .round_bytes = scaled(four.round_bytes, slower),
          .blocks = kind == kernels::ArenaKind::host
                        ? std::max(static_cast<std::uint32_t>(scaled(four.blocks, slower)), least_blocks)
                        : four.blocks,
          .encoded_bytes = scaled(four.encoded_bytes, slower)};
}

CopyBorders copy_borders_of(std::uint32_t max_sms) {
  if (max_sms == no_sms) return {16 * mb, 16 * mb, 1, 1};
  if (max_sms == 0 || max_sms > 8) return {};
  return max_sms <= 4 ? CopyBorders{16 * mb, 16 * mb, 16 * mb} : CopyBorders{128 * mb, 64 * mb, 64 * mb};
}

std::size_t cpu_reduce_border_bytes(std::uint32_t meeting, std::uint32_t crossing, std::uint32_t ranks,
                                    const ExchangeRates& rates) {
  constexpr double least_promise = 1.6 * (1 - 1e-9);  // what five that meet promise, whichever way it is rounded
  // What threads cost apart from bytes, as where six to ten ranks behind one link of 44 GB/s broke even.
  constexpr double start_us = 700;
  constexpr double bytes_per_us = 1e3;  // of one GB/s
  if (meeting < 2 || rates.gbps <= 0 || rates.sums_gbps <= 0) return 0;
  const double m = meeting, gbps = rates.gbps * ranks / crossing;
  const double by_gpus_us = 2 * (m - 1) / m / (gbps * bytes_per_us);  // for each byte of the message
  const double by_cpus_us = std::max(1 / gbps, ranks / rates.sums_gbps) / bytes_per_us;
  if (by_gpus_us < least_promise * by_cpus_us) return 0;
  return std::max(mb, static_cast<std::size_t>(start_us / (by_gpus_us - by_cpus_us)));
}

std::uint32_t cpu_reducers_of_each(std::uint32_t wanted, std::uint32_t most, std::uint32_t ranks,
                                   std::size_t crossing) {
  return std::min(wanted, std::max(most / ranks, crossing <= most ? 1u : 0u));
}

}  // namespace strait
