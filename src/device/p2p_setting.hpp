#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "launches/islands.hpp"

namespace strait {

/// How GPU ranks may use one another's memory.
enum class P2p : std::uint8_t {
  automatic,  ///< as far as the driver grants it and a probe shows it
  pcie,       ///< likewise, as over PCIe even where NVLink joins them
  off         ///< not at all
};

/// STRAIT_P2P.
struct P2pSetting {
  P2p use = P2p::automatic;
  std::vector<Island> groups;  ///< the only ranks that may use P2P, each with those of its group; none: all may
  std::string text = "auto";   ///< as it was given
};

/// "auto", "pcie", "off", groups as in "0-1,2-3-5", or "pcie," and groups. The error names what is wrong.
Result<P2pSetting> parse_p2p(const std::string& text);
/// Whether all ranks that the setting names exist.
Status check_ranks(const P2pSetting& setting, std::uint32_t ranks);

/// The setting of a communicator that `members` of another one form, in their new order.
P2pSetting part_of(const P2pSetting& setting, std::span<const std::uint32_t> members);

/// Which ranks may reach which, as the setting says.
Reach allowed_reach(const P2pSetting& setting, std::uint32_t ranks);

}  // namespace strait
