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

/// Of so many a reduce-scatter may have a residual, which goes there and back with each block that is sent.
inline constexpr std::size_t most_residual_hosts = (kernels::max_flows - 1) / 3;

/// What messages go in: what a link between hosts takes at a time, as far as all that a launch can have find room.
constexpr std::uint32_t network_piece_bytes(std::uint32_t slot_bytes, std::size_t link_bytes) {
  const std::size_t most = std::bit_floor(kernels::network_slots_bytes(slot_bytes) / kernels::max_flows);
  return static_cast<std::uint32_t>(link_bytes < most ? link_bytes : most);
}

/// One launch of the kernel that trades with other hosts (kernels/network.hpp).
struct NetworkLaunch {
  /// What stays with the rank, of any memory that its device reaches: to be made before the kernel reads or writes.
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  Copy kept{};  ///< likewise, of what is short, by the kernel; of 0 bytes: nothing
  kernels::NetworkCall call{};
  std::vector<kernels::Flow> flows;            ///< none of messages: there is no kernel to launch
  std::uint32_t first_step = 0, end_step = 0;  ///< as of a NetworkExchange: those of a call in parts follow one another
};

/// What GPU ranks of several hosts have their proxies do: the steps of DeviceIslands, whose islands are hosts, that
/// leave the host. A pure function of the call and of what all ranks know alike.
///
/// Collectives are cut into rounds, the same on all ranks, each a collective of the host ranks. What goes from rank to
/// rank, also of collectives whose blocks stay within hosts in part, are messages, which do not wait for one another
/// as far as one launch has room for them. Long ones are cut into stripes, which lanes of the proxies carry side by
/// side: both ends know how by the length alone. Launches follow one another in the order of how far apart the ranks
/// are, at either end, so that of all messages that wait those that are nearest never wait for others.
class NetworkCalls {
 public:
  NetworkCalls() = default;
  struct Slots {
    std::uint32_t slot_bytes;   ///< of a round; at least 16 KB for each host, and all together a piece for each flow
    std::uint32_t piece_bytes;  ///< of messages: network_piece_bytes()
    std::uint32_t lanes;        ///< of the proxies, for messages
  };
  NetworkCalls(std::uint32_t rank, std::vector<Island> hosts, const Slots& slots);

  /// Of a step across hosts or among all.
  std::vector<NetworkLaunch> launches_of(const IslandStep& step) const;
  /// Of a group's sends and receives, whose peers are numbered as in the communicator.
  std::vector<NetworkLaunch> launches_of_messages(std::span<const Call> messages) const;
  /// Kernel blocks that pay for such a launch, at most so many but for what needs more. (no_sms: there is no such way.)
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
  std::vector<NetworkLaunch::Copy> take_long_own(std::vector<Call>& messages) const;
  void add_stripes(const Call& message, std::vector<kernels::Flow>& flows) const;
  void share_slots(std::vector<kernels::Flow>& flows) const;
  static void heed_places(std::vector<kernels::Flow>& flows);
  kernels::Flow flow(const void* data, std::size_t elements, const Call& call, bool sends) const;

  std::uint32_t rank_ = 0, ranks_ = 0;
  std::vector<Island> hosts_;
  std::uint32_t host_ = 0;  ///< this rank's
  std::uint32_t slot_bytes_ = 0, piece_bytes_ = 0, lanes_ = 1;
  std::uint32_t most_stripes_ = 1;  ///< so that an all-to-all goes in one launch, as far as that can be
};

}  // namespace strait
