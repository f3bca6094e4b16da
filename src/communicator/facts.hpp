#pragma once

#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/wire_format.hpp"
#include "bootstrap/channel.hpp"
#include "plan/clock.hpp"
#include "select/tuning.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait {

/// What ranks tell one another before they open a transport.
struct Facts {
  shm::Secret secret;             ///< the lowest rank's is used
  cpu_set_t cores;                ///< that this rank may run on; launchers often give each rank its own
  std::array<char, 64> tuning{};  ///< what must be equal of the tuning file, in words
  WireFormat wire{};
  std::uint64_t communicator = 0;   ///< rank 0's names it, for its reader
  bool has_measured_plans = false;  ///< rank 0's calibration tells of plans of as many ranks
  HostRates rates;  ///< what rank 0 knows of its machine decides for all; but for the cache, the smallest of all
  double network_gbps = 0;  ///< of GPU ranks of several hosts: rate_gbps() of the interface that they trade by
};
Facts own_facts(const Environment& environment, const Channel& channel, bool is_on_device, WireFormat wire,
                const Tuning& tuning);
/// All ranks', by rank; an error where settings differ that must not. Collective.
Result<std::vector<Facts>> exchange_facts(Channel& channel, const Facts& own, const Deadline& deadline);

/// What all ranks conclude from them alike, so that they choose alike.
struct CommonResources {
  HostRates rates;
  std::uint32_t cores = 0;        ///< of all ranks' hosts together
  std::uint32_t least_cores = 0;  ///< a rank's share of them, on the host where that is smallest
  double least_network_gbps = 0;  ///< likewise of what the network carries; 0: unknown
};
CommonResources common_resources(const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts);
/// Whether there are more ranks on a host than cores for them.
bool is_oversubscribed(const std::string& host_id, const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts);

/// By what selection predicts times over the transport of that name. Collective.
Result<ClockModel> model_of(Channel& channel, const std::string& transport, const CommonResources& resources,
                            bool has_measured_plans, const Deadline& deadline);

}  // namespace strait
