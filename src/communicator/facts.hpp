#pragma once

#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/cpus.hpp"
#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/wire_format.hpp"
#include "bootstrap/channel.hpp"
#include "communicator/transports.hpp"
#include "plan/clock.hpp"
#include "select/tuning.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait {

/// What each rank tells the others before a transport is opened.
struct Facts {
  shm::Secret secret;             ///< rank 0's is used
  cpu_set_t cores;                ///< on which this rank may run; launchers often give each rank its own
  CpuQuota quota;                 ///< of their time; in a container it may be a small part
  std::array<char, 64> tuning{};  ///< of the tuning file: what must be equal on all ranks, as text
  WireFormat wire{};
  std::uint64_t communicator = 0;   ///< rank 0's is the communicator's number, for its readers
  bool has_measured_plans = false;  ///< rank 0's calibration has measured plans of this many ranks
  HostRates rates;                  ///< rank 0's hold for all ranks, but of the caches the smallest one
  double network_gbps = 0;  ///< GPU ranks of several hosts: rate_gbps() of the interface that they use; 0: unknown
};
Facts own_facts(const Environment& environment, const Channel& channel, bool is_on_device, WireFormat wire,
                const Tuning& tuning);
/// Returns the facts of all ranks, by rank; an error if settings differ that must be equal. Collective.
Result<std::vector<Facts>> exchange_facts(Channel& channel, const Facts& own, const Deadline& deadline);

/// What all ranks derive from the facts in the same way, so that they choose alike.
struct CommonResources {
  HostRates rates;
  std::uint32_t cores = 0;        ///< of all ranks' hosts together
  std::uint32_t least_cores = 0;  ///< cores per rank, on the host where that is smallest
  double least_network_gbps = 0;  ///< network GB/s per rank, on the host where that is smallest; 0: unknown
};
CommonResources common_resources(const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts);
/// Returns whether a host has more ranks than cores for them.
bool is_oversubscribed(const std::string& host_id, const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts);

/// Returns the model by which selection predicts times over that transport, to which `adapt` fits it. Collective.
Result<ClockModel> model_of(Channel& channel, const std::string& transport, AdaptModel adapt,
                            const CommonResources& resources, bool has_measured_plans, const Deadline& deadline);

}  // namespace strait
