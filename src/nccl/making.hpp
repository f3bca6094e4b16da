#pragma once

#include <functional>
#include <mutex>

#include "nccl/group.hpp"

namespace strait::nccl {

/// While it lives, ncclCommAbort and ncclCommRevoke of `comm` abort this communicator of Strait's, too; at once where
/// one has come since there were `known_stops`.
class Joining {
 public:
  Joining(ncclComm& comm, straitComm_t joining, std::uint64_t known_stops) : comm_(comm) {
    const std::scoped_lock lock(comm_.mutex);
    comm_.joining = joining;
    if (comm_.stops != known_stops && joining != nullptr) (void)straitCommAbort(joining);
  }
  ~Joining() {
    const std::scoped_lock lock(comm_.mutex);
    comm_.joining = nullptr;
  }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

 private:
  ncclComm& comm_;
};

/// Of a rank to be.
struct Place {
  int ranks;
  int rank;
  int device;  ///< -1: a host rank
};

/// What Strait is to make of `comm`.
straitConfig_t straits_config(const ncclComm& comm, int device);

/// Has `post` call what makes a communicator out of other ranks' calls. Done as a group, so that its handle is there
/// while ranks still wait for one another, for ncclCommAbort of `comm`, or meanwhile of `parent`, which may be NULL.
ncclResult_t make_stoppable(ncclComm& comm, ncclComm* parent, straitComm_t* made,
                            const std::function<straitResult_t(straitComm_t* joining)>& post);

/// Joins `comm`'s ranks by the ticket.
ncclResult_t join(ncclComm& comm, straitComm_t* made, const Place& place, const straitUniqueId& ticket);

/// What every way to a new communicator does: reads the configuration, fills in the handle, has the work done or
/// recorded. `parent` may be NULL; without `makes_one` this rank gets no communicator, but takes part.
ncclResult_t set_up(const char* function, ncclComm_t* out, ncclComm* parent, const ncclConfig_t* config,
                    decltype(SetUp::make) make, bool makes_one = true);

}  // namespace strait::nccl
