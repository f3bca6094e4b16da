#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "launches/islands.hpp"

namespace strait {

/// How GPU ranks may access one another's memory.
enum class P2p : std::uint8_t {
  automatic,  ///< as far as the driver grants it and a probe shows it
  pcie,       ///< as `automatic`, but as over PCIe even where NVLink connects the GPUs
  off         ///< not at all
};

/// The value of STRAIT_P2P.
struct P2pSetting {
  P2p use = P2p::automatic;
  std::vector<Island> groups;  ///< only ranks of the same group may use P2P; empty: all may
  std::string text = "auto";   ///< as given, for messages
};

/// Parses "auto", "pcie", "off", groups as in "0-1,2-3-5", or "pcie," and groups. The error says what is wrong.
Result<P2pSetting> parse_p2p(const std::string& text);
/// Checks that all ranks that the setting names exist.
Status check_ranks(const P2pSetting& setting, std::uint32_t ranks);

/// Returns the setting for a communicator that `members` of another one form, in their new order.
P2pSetting part_of(const P2pSetting& setting, std::span<const std::uint32_t> members);

/// Returns which ranks may access which other ranks' memory according to the setting.
Reach allowed_reach(const P2pSetting& setting, std::uint32_t ranks);

}  // namespace strait
