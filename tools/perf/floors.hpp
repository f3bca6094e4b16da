#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.hpp"

/// How long a collective takes at least where every byte between GPUs goes through host memory.
namespace strait::perf {

/// Of a rank's link to the host, in GB/s, while all ranks copy the same way. Up is to the host.
struct LinkRates {
  double up_gbps = 0;
  double down_gbps = 0;
  double duplex_gbps = 0;  ///< of each direction while all ranks copy both ways
};

std::string describe(const LinkRates& rates);

struct Floor {
  double time_us = 0;         ///< each direction by itself: no algorithm is faster
  double duplex_time_us = 0;  ///< copies that keep both directions as busy as these links allow
  std::string_view binding;   ///< the direction of time_us: "up" or "down"
};

/// Bytes over rates: the least that every rank's link must carry, whoever adds. `bytes` are those of the larger buffer.
///  - all-reduce: all of it up, all of it down
///  - all-gather: its own block up, the others' down
///  - reduce-scatter: what others add up, its own block down
///  - all-to-all: the others' blocks, both ways
/// Nothing for other collectives, where ranks differ, and for one rank.
std::optional<Floor> floor_of(Collective collective, std::size_t bytes, std::uint32_t ranks, const LinkRates& rates);

}  // namespace strait::perf
