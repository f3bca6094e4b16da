#pragma once

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

/// Joins `comm`'s ranks by the ticket.
ncclResult_t join(ncclComm* comm, straitComm_t* made, const Place& place, const straitUniqueId& ticket);

/// What every way to a new communicator does: reads the configuration, fills in the handle, has the work done or
/// recorded. `parent` may be NULL; without `makes_one` this rank gets no communicator, but takes part.
ncclResult_t set_up(const char* function, ncclComm_t* out, ncclComm* parent, const ncclConfig_t* config,
                    decltype(SetUp::make) make, bool makes_one = true);

}  // namespace strait::nccl
