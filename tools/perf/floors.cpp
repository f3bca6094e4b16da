#include "perf/floors.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.hpp"

namespace strait::perf {
namespace {

struct LinkBytes {
  double up, down;
};

std::optional<LinkBytes> least_through_host(Collective collective, double bytes, double ranks) {
  const double block = bytes / ranks, others = bytes - block;
  switch (collective) {
    case Collective::all_reduce:
      return LinkBytes{bytes, bytes};
    case Collective::all_gather:
      return LinkBytes{block, others};
    case Collective::reduce_scatter:
      return LinkBytes{others, block};
    case Collective::all_to_all:
      return LinkBytes{others, others};
    default:
      return std::nullopt;
  }
}

std::optional<double> least_to_peers(Collective collective, double bytes, double ranks) {
  const double others = bytes - bytes / ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * others;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return others;
    default:
      return std::nullopt;
  }
}

/// Both directions at once for a time, then what is left of either alone. The whole is piecewise linear in that time:
/// least where a direction runs out, or at 0.
double duplex_us(const LinkBytes& bytes, const HostLinkRates& rates) {
  const auto whole = [&](double both) {
    const auto left = [&](double part, double alone) { return std::max(0.0, part - rates.duplex_gbps * both) / alone; };
    return both + left(bytes.up, rates.up_gbps) + left(bytes.down, rates.down_gbps);
  };
  return std::min({whole(0), whole(bytes.up / rates.duplex_gbps), whole(bytes.down / rates.duplex_gbps)});
}

Floor floor_at(const HostLinkRates& rates, const LinkBytes& least) {
  const double up = least.up / rates.up_gbps, down = least.down / rates.down_gbps;
  const double time_us = std::max(up, down);
  // What is measured wavers: both at once may look faster than one alone.
  return {time_us, std::max(time_us, duplex_us(least, rates)), up >= down ? "up" : "down"};
}

std::string text_of(const HostLinkRates& rates) {
  return fmt::format(
      "Links to the host, all ranks at once, the slowest rank's: {:.2f} GB/s up, {:.2f} down, {:.2f} each "
      "while both are busy",
      rates.up_gbps, rates.down_gbps, rates.duplex_gbps);
}

std::string text_of(const PeerLinkRates& rates) {
  return fmt::format("Copies to all peers, all ranks at once, the slowest rank's: {:.2f} GB/s", rates.out_gbps);
}

}  // namespace

std::string describe(const LinkRates& rates) {
  return std::visit([](const auto& of_kind) { return text_of(of_kind); }, rates);
}

std::optional<Floor> floor_of(Collective collective, std::size_t bytes, std::uint32_t ranks, const LinkRates& rates) {
  const double whole = static_cast<double>(bytes) / bytes_per_us;
  if (ranks < 2) return std::nullopt;
  if (const auto* peers = std::get_if<PeerLinkRates>(&rates)) {
    const auto out = least_to_peers(collective, whole, ranks);
    if (!out) return std::nullopt;
    return Floor{*out / peers->out_gbps, *out / peers->out_gbps, "peers"};
  }
  const auto least = least_through_host(collective, whole, ranks);
  if (!least) return std::nullopt;
  return floor_at(std::get<HostLinkRates>(rates), *least);
}

}  // namespace strait::perf
