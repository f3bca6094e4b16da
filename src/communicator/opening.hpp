#pragma once

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "communicator/comm.hpp"
#include "communicator/facts.hpp"
#include "executor/host/reduce.hpp"
#include "select/select.hpp"
#include "select/tuning.hpp"

namespace strait {

/// What is needed to make a communicator, but not afterwards.
struct Comm::Opening {
  const IsCancelled& is_cancelled;
  const Environment environment{};
  Deadline deadline = Deadline::never();  ///< set once the settings are read
  // Settings from the environment that CommOptions does not hold.
  SelectOptions select{};
  Tuning tuning{};
  Simd simd = Simd::portable;
  double exchange_gbps = 0;         ///< GPU ranks over PCIe: GB/s of each while all exchange; 0: as found
  bool measures_exchange = true;    ///< GPU ranks without P2P: whether they measure that rate
  bool shares_gpus = false;         ///< GPU ranks: processes may share a GPU
  std::uint32_t network_lanes = 0;  ///< GPU ranks of several hosts: lanes of each proxy; 0: network_lanes()
  CommonResources resources{};      ///< known once the transport is open
};

}  // namespace strait
