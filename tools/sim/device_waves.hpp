#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "launches/device_islands.hpp"
#include "launches/device_quantized.hpp"

/// Splits calls of GPU ranks into the steps that these ranks carry out one after another, by the same rules as the
/// ranks themselves (DeviceIslands, DeviceQuantized).
namespace strait::sim {

/// Steps of several ranks that are alike and run at the same time. Either kernel launches that exchange nothing with
/// other ranks (each group is one rank), or one call by each group of ranks (groups have the same size). Groups contain
/// ranks of the communicator. A call that is encoded as it is sent is a call of bytes here, and keeps its wire format.
/// If the messages of a call differ in length, `count` is their mean: the total is the same, and the clock handles a
/// single count only.
struct WavePart {
  IslandStep::Among among = IslandStep::Among::all;
  std::vector<Island> groups;
  std::variant<WireLaunch, Call> what;
};
using Wave = std::vector<WavePart>;

/// Determines the waves of calls on GPU ranks: steps that run at the same time.
class DeviceWaves {
 public:
  /// `islands` contains every rank, also those that are alone; empty: no islands. `encoded_bytes`:
  /// Borders::encoded_bytes.
  DeviceWaves(std::uint32_t ranks, std::vector<Island> islands, std::size_t encoded_bytes);
  /// Returns whether the call consists of more than a single exchange among all ranks.
  bool has_steps(const Call& call) const;
  /// Returns the waves of a call, in order. A step belongs to the first wave in which all ranks that take part have
  /// reached it. All steps of a wave end before the next wave begins. Returns an error if ranks would wait for one
  /// another forever.
  Result<std::vector<Wave>> of(const Call& call) const;

 private:
  struct Part {
    IslandStep::Among among = IslandStep::Among::all;
    std::variant<WireLaunch, Call> what;
  };
  using Parts = std::vector<Part>;
  bool is_carried(const Call& call) const;
  void add_parts(std::uint32_t rank, const Call& call, Parts& parts) const;
  bool encodes_on_the_way(const Call& call, std::uint32_t members) const;
  Island group_of(std::uint32_t rank, IslandStep::Among among) const;

  std::uint32_t ranks_;
  std::vector<Island> islands_;
  std::size_t encoded_bytes_;
  std::vector<DeviceIslands> rules_;  ///< by rank
};

}  // namespace strait::sim
