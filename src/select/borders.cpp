#include "select/borders.hpp"

#include <algorithm>

#include "select/exchange_rates.hpp"

namespace strait {
namespace {

/// Borders measured on four ranks, and the rate of their links.
struct Measured {
  double gbps;
  Borders borders;
};
constexpr std::size_t kb = 1 << 10, mb = 1 << 20;
constexpr double pcie_gbps = unknown_exchange_gbps;
constexpr Measured between_peers{390, {32 * kb, 320 * kb, 768 * kb, 12 * kb, 0, 0, kernels::max_lanes, 16 * mb}};
constexpr Measured through_host{pcie_gbps,
                                {80 * kb, 40 * kb, 384 * kb, 32 * kb, 240 * kb, 1600, kernels::max_lanes, 512 * kb}};
constexpr double most_stagger_ns = 1e9;  // whatever rate is set
constexpr std::uint32_t least_blocks = 8;
constexpr std::uint32_t measured_ranks = 4;

/// Return the bytes that the busiest rank receives in one hop in excess of two hops, per byte of the message.
double excess_of_all_reduce(std::uint32_t ranks) {
  const double n = ranks;
  return (n - 1) - 2 * (n - 1) / n;
}
double excess_of_reduce(std::uint32_t ranks) { return ranks - 2.0; }

/// Returns the ratio of the border with `ranks` ranks to the border with four.
double border_ratio(double (*excess)(std::uint32_t), std::uint32_t ranks) {
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
  const double messages = std::max(ranks, 2u) - 1;  // number of messages that a rank receives
  return {.packets_bytes = scaled(four.packets_bytes, pcie / pcie_gbps * (measured_ranks - 1) / messages),
          .one_hop_bytes = scaled(four.one_hop_bytes, slower * border_ratio(excess_of_all_reduce, ranks)),
          .one_hop_reduce_bytes = scaled(four.one_hop_reduce_bytes, slower * border_ratio(excess_of_reduce, ranks)),
          .min_overlap_lane_bytes = kind == kernels::ArenaKind::host ? four.min_overlap_lane_bytes
                                                                     : scaled(four.min_overlap_lane_bytes, slower),
          .round_cost_bytes = scaled(four.round_cost_bytes, slower),
          .stagger_ns = static_cast<std::uint32_t>(std::min(four.stagger_ns / slower, most_stagger_ns)),
          .blocks = kind == kernels::ArenaKind::host
                        ? std::max(static_cast<std::uint32_t>(scaled(four.blocks, slower)), least_blocks)
                        : four.blocks,
          .encoded_bytes = scaled(four.encoded_bytes, slower)};
}

}  // namespace strait
