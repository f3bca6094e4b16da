#pragma once

#include <functional>

#include "nccl/group.hpp"

namespace strait::nccl {

/// Of a rank to be.
struct Place {
  int ranks;
  int rank;
  int device;  ///< -1: a host rank
};

/// What Strait is to make of `comm`.
straitConfig_t straits_config(const ncclComm& comm, int device);

/// Makes Strait's communicator by `begin`, as a group, so that there is a handle while ranks still join, for
/// ncclCommAbort.
ncclResult_t make_in_group(ncclComm* comm, straitComm_t* made,
                           const std::function<straitResult_t(straitComm_t* joining)>& begin);

/// Joins `comm`'s ranks by the ticket.
ncclResult_t join(ncclComm* comm, straitComm_t* made, const Place& place, const straitUniqueId& ticket);

/// What every way to a new communicator does: reads the configuration, fills in the handle, has the work done or
/// recorded. `parent` may be NULL; without `makes_one` this rank gets no communicator, but takes part.
ncclResult_t set_up(const char* function, ncclComm_t* out, ncclComm* parent, const ncclConfig_t* config,
                    decltype(SetUp::make) make, bool makes_one = true);

}  // namespace strait::nccl
