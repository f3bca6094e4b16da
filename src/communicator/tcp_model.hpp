#pragma once

#include <vector>

#include "bootstrap/peer_info.hpp"
#include "plan/clock.hpp"

namespace strait {

/// Makes a model one of ranks that TCP connects: the kernel copies each byte at both ends, and a slot takes a system
/// call or more at each. With less than 6 us per step, what could be pipelined was cut into slices that took twice as
/// long as a whole slot (docs/experiments-hosts.md). Within a host the rates are those of
/// perf/results/host_vs_mpi_tcp_2_ranks.json; between hosts they stand for a network of 25 Gbit/s, which a host's ranks
/// share, until networks are calibrated.
void put_tcp_between(ClockModel& model, const std::vector<PeerInfo>& peers);

}  // namespace strait
