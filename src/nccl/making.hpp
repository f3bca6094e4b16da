#pragma once

#include <functional>
#include <mutex>

#include "nccl/group.hpp"

namespace strait::nccl {

/// While this object lives, ncclCommAbort and ncclCommRevoke of `comm` also abort `joining`, a Strait communicator that
/// is being made. If such a call has already come since `comm` had counted `known_stops` of them, `joining` is aborted
/// immediately.
class AbortTarget {
 public:
  AbortTarget(ncclComm& comm, straitComm_t joining, std::uint64_t known_stops) : comm_(comm) {
    const std::scoped_lock lock(comm_.mutex);
    comm_.joining = joining;
    if (comm_.stops != known_stops && joining != nullptr) (void)straitCommAbort(joining);
  }
  ~AbortTarget() {
    const std::scoped_lock lock(comm_.mutex);
    comm_.joining = nullptr;
  }
  AbortTarget(const AbortTarget&) = delete;
  AbortTarget& operator=(const AbortTarget&) = delete;

 private:
  ncclComm& comm_;
};

/// Position of the calling rank in a communicator to be made.
struct RankPosition {
  int ranks;
  int rank;
  int device;  ///< CUDA device; -1 for a host rank
};

/// Returns the configuration with which Strait makes the communicator behind `comm`.
straitConfig_t straits_config(const ncclComm& comm, int device);

/// Makes a Strait communicator by a collective call that `post` issues, and waits for the other ranks. The call is
/// issued inside a Strait group, so that the handle exists while the ranks still wait for one another: ncclCommAbort of
/// `comm`, or of `parent` (may be NULL), can then abort it meanwhile.
ncclResult_t make_stoppable(ncclComm& comm, ncclComm* parent, straitComm_t* made,
                            const std::function<straitResult_t(straitComm_t* joining)>& post);

/// Makes `comm`'s Strait communicator with the other ranks that have the same unique id.
ncclResult_t join(ncclComm& comm, straitComm_t* made, const RankPosition& position, const straitUniqueId& ticket);

/// Common part of all functions that make a communicator: reads the configuration, creates the handle, and runs the
/// work or records it. `parent` may be NULL. If `makes_one` is false, this rank takes part but gets no communicator.
/// `function` names the caller in errors.
ncclResult_t set_up(const char* function, ncclComm_t* out, ncclComm* parent, const ncclConfig_t* config,
                    decltype(SetUp::make) make, bool makes_one = true);

}  // namespace strait::nccl
