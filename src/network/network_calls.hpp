#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calls/call.hpp"
#include "kernels/network.hpp"
#include "launches/device_islands.hpp"

namespace strait {

/// The largest number of hosts between which a reduce-scatter can have a residual. The residual of each block that is
/// sent goes to the host and back, so each host's block takes three flows, and one more receives the result.
inline constexpr std::size_t most_residual_hosts = (kernels::max_flows - 1) / 3;

/// The number of blocks of a launch that saturates a link to the host.
inline constexpr std::uint32_t most_network_blocks = 4;

/// Returns the size of the pieces of messages: what a link between hosts takes at a time, but no more than leaves room
/// for a piece of each of the flows that a launch can have.
constexpr std::uint32_t network_piece_bytes(std::uint32_t slot_bytes, std::size_t link_bytes) {
  const std::size_t most = std::bit_floor(kernels::network_slots_bytes(slot_bytes) / kernels::max_flows);
  return static_cast<std::uint32_t>(link_bytes < most ? link_bytes : most);
}

/// One launch of the kernel that exchanges data with other hosts (kernels/network.hpp).
struct NetworkLaunch {
  /// Data that stays with the rank, in any memory that its device reaches. The copy must be enqueued before the kernel.
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  Copy local_copy{};  ///< a short copy of this kind, which the kernel makes; 0 bytes: none
  kernels::NetworkCall call{};
  std::vector<kernels::Flow> flows;  ///< if empty in a launch of messages: no kernel is launched
  /// As in NetworkExchange; the launches of a call in parts have consecutive ranges.
  std::uint32_t first_step = 0, end_step = 0;
};

/// Decides what the proxies of GPU ranks of several hosts exchange: the steps of DeviceIslands, whose islands are the
/// hosts, that leave the host. A pure function of the call and of what all ranks know alike.
///
/// Collectives are cut into rounds, the same on all ranks; each round is a collective of the host ranks. Data that goes
/// from rank to rank travels as messages, also that of collectives some of whose blocks stay within the hosts. Messages
/// do not wait for one another, as far as one launch has room for them. Long messages are cut into stripes, which the
/// lanes of the proxies carry in parallel; both ends derive the cut from the length alone. Launches are in the order of
/// the distance between the two ranks, at both ends. So of all waiting messages those between the nearest ranks never
/// wait for others, and some can always proceed.
class NetworkCalls {
 public:
  NetworkCalls() = default;
  struct Slots {
    /// Slot of a round: at least 16 KB for each host; all slots together hold a piece of each flow.
    std::uint32_t slot_bytes;
    std::uint32_t piece_bytes;  ///< piece of a message: network_piece_bytes()
    std::uint32_t lanes;        ///< lanes of the proxies that messages use
  };
  NetworkCalls(std::uint32_t rank, std::vector<Island> hosts, const Slots& slots);

  /// Returns the launches of a step across hosts or among all ranks.
  std::vector<NetworkLaunch> launches_of(const IslandStep& step) const;
  /// Returns the launches of a group's sends and receives, whose peers are ranks of the communicator.
  std::vector<NetworkLaunch> launches_of_messages(std::span<const Call> messages) const;
  /// Returns the number of thread blocks that pay off for a launch: at most `max_sms`, unless the launch needs more.
  /// With no_sms it is one, or what the launch needs, because no path works without a kernel.
  static std::uint32_t blocks_for(const NetworkLaunch& launch, std::uint32_t max_sms);

 private:
  using Launches = std::vector<NetworkLaunch>;
  using Among = kernels::NetworkCall::Among;
  using Part = IslandStep::Part;
  Launches across(const Call& call, const Part& part) const;
  Launches exchange(const Call& call) const;
  Launches in_one_round(const Call& call) const;
  Launches for_each_host(const Call& call) const;
  std::size_t piece_of_rounds(const Call& call, const Part& part) const;
  void add_residual(const Call& call, const Part& part, NetworkLaunch& launch) const;
  NetworkLaunch in_rounds(const Call& call, const Part& part, std::vector<kernels::Flow> flows) const;
  std::vector<NetworkLaunch::Copy> extract_self_copies(std::vector<Call>& messages) const;
  void add_stripes(const Call& message, std::vector<kernels::Flow>& flows) const;
  void share_slots(std::vector<kernels::Flow>& flows) const;
  static void order_in_place_flows(std::vector<kernels::Flow>& flows);
  kernels::Flow flow(const void* data, std::size_t elements, const Call& call, bool sends) const;

  std::uint32_t rank_ = 0, ranks_ = 0;
  std::vector<Island> hosts_;
  std::uint32_t host_ = 0;  ///< index of this rank's host
  std::uint32_t slot_bytes_ = 0, piece_bytes_ = 0, lanes_ = 1;
  /// Largest number of stripes of a message, such that an all-to-all fits into one launch if possible.
  std::uint32_t most_stripes_ = 1;
};

}  // namespace strait
