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
  CommonResources resources{};  ///< known once the transport is open
};

}  // namespace strait
