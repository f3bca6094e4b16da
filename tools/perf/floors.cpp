#include "perf/floors.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace strait::perf {
namespace {

struct LinkBytes {
  double up, down;
};

std::optional<LinkBytes> least_bytes(Collective collective, double bytes, double ranks) {
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

/// Both directions at once for a time, then what is left of either alone. The whole is piecewise linear in that time:
/// least where a direction runs out, or at 0.
double duplex_us(const LinkBytes& bytes, const LinkRates& rates) {
  const auto whole = [&](double both) {
    const auto left = [&](double part, double alone) { return std::max(0.0, part - rates.duplex_gbps * both) / alone; };
    return both + left(bytes.up, rates.up_gbps) + left(bytes.down, rates.down_gbps);
  };
  return std::min({whole(0), whole(bytes.up / rates.duplex_gbps), whole(bytes.down / rates.duplex_gbps)});
}

}  // namespace

std::string describe(const LinkRates& rates) {
  return fmt::format("{:.2f} GB/s up, {:.2f} down, {:.2f} each while both are busy", rates.up_gbps, rates.down_gbps,
                     rates.duplex_gbps);
}

std::optional<Floor> floor_of(Collective collective, std::size_t bytes, std::uint32_t ranks, const LinkRates& rates) {
  constexpr double bytes_a_us = 1e3;  // of 1 GB/s
  const auto least = least_bytes(collective, static_cast<double>(bytes) / bytes_a_us, ranks);
  if (!least || ranks < 2) return std::nullopt;
  const double up = least->up / rates.up_gbps, down = least->down / rates.down_gbps;
  const double time_us = std::max(up, down);
  // What is measured wavers: both at once may look faster than one alone.
  return Floor{time_us, std::max(time_us, duplex_us(*least, rates)), up >= down ? "up" : "down"};
}

}  // namespace strait::perf
