#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/types.hpp"

/// How long a collective takes at least, by what the GPUs' links carry.
namespace strait::perf {

/// Where every byte between GPUs goes through host memory: of a rank's link to it, in GB/s, while all ranks copy the
/// same way. Up is to the host.
struct HostLinkRates {
  double up_gbps = 0;
  double down_gbps = 0;
  double duplex_gbps = 0;  ///< of each direction while all ranks copy both ways
};

/// With P2P: what a rank's copies to all others carry together, in GB/s, while all ranks make such copies.
struct PeerLinkRates {
  double out_gbps = 0;
};

using LinkRates = std::variant<HostLinkRates, PeerLinkRates>;

/// Whether ranks of this transport trade over several kinds of links, islands or hosts: no one rate binds, and sums are
/// taken within these first. Only GPU ranks do: "tcp+ucx" of host ranks joins all of them alike.
inline bool has_levels(std::string_view transport, bool is_on_gpus) {
  return is_on_gpus && (transport == "islands" || transport.find('+') != std::string_view::npos);
}

/// What links these are and what they give, for a table's header.
std::string describe(const LinkRates& rates);

struct Floor {
  double time_us = 0;         ///< each direction by itself; through host memory no algorithm is faster
  double duplex_time_us = 0;  ///< copies that keep both directions as busy as these links allow
  std::string_view binding;   ///< what time_us is of: "up", "down" or "peers"
};

/// Bytes over rates: the least that every rank's link must carry, whoever adds. `bytes` are those of the larger buffer.
/// Through host memory:
///  - all-reduce: all of it up, all of it down
///  - all-gather: its own block up, the others' down
///  - reduce-scatter: what others add up, its own block down
///  - all-to-all: the others' blocks, both ways
/// Between peers, where both directions have been busy at once: the others' blocks, and for an all-reduce twice as much
/// (P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
/// Nothing for other collectives, where ranks differ, and for one rank.
std::optional<Floor> floor_of(Collective collective, std::size_t bytes, std::uint32_t ranks, const LinkRates& rates);

}  // namespace strait::perf
