#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "launches/device_islands.hpp"
#include "launches/device_quantized.hpp"

/// Of what calls of GPU ranks consist, as the rules say by which these ranks themselves go (DeviceIslands,
/// DeviceQuantized).
namespace strait::sim {

/// What happens at the same time: kernels of some ranks that trade with nobody, all alike; or one call by each of some
/// groups of ranks, all of one size and alike. By rank of the communicator. A call that is encoded on its way is one of
/// bytes, which bears its wire format. Where the lengths of a call's messages
/// differ, its count is their mean: as many bytes, and the clock knows one count.
struct WavePart {
  IslandStep::Among among = IslandStep::Among::all;
  std::vector<Island> groups;
  std::variant<WireLaunch, Call> what;
};
using Wave = std::vector<WavePart>;

class DeviceWaves {
 public:
  /// `islands`: of all ranks, those that are alone too; none: there are no islands. `encoded_bytes`: as in Borders.
  DeviceWaves(std::uint32_t ranks, std::vector<Island> islands, std::size_t encoded_bytes);
  /// Whether the call is more than one exchange between all ranks.
  bool has_steps(const Call& call) const;
  /// The steps of all ranks, each as soon as all that take part have come to it, and all that have begun end before the
  /// next ones begin.
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
  std::vector<DeviceIslands> rules_;  ///< of each rank
};

}  // namespace strait::sim
