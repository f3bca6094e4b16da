// Queries of a communicator, and how it ends: finalize, destroy, abort, revoke.
#include <chrono>
#include <thread>

#include "nccl/entry.hpp"
#include "nccl/group.hpp"

namespace strait::nccl {
namespace {

constexpr auto poll_interval = std::chrono::microseconds(100);

/// Checks that the caller may end the communicator: the handle is valid, and this thread's open group has no calls on
/// it.
ncclResult_t endable(ncclComm_t handle, const char* function) {
  if (live_comm(handle) == nullptr)
    return failed(ncclInvalidArgument, std::string(function) + ": this is not a communicator, or it was destroyed");
  if (Group::of_this_thread().keeps(handle))
    return failed(ncclInvalidUsage,
                  std::string(function) + ": the open group holds calls on this communicator. End the group first");
  return ncclSuccess;
}

void await_set_up(const ncclComm& comm) {
  while (comm.progress.load(std::memory_order_acquire) == ncclInProgress) std::this_thread::sleep_for(poll_interval);
}

/// Waits until the GPU no longer uses any memory for aborted calls: milliseconds, or at most 10 s if other work holds
/// up the GPU.
void await_gpu(ncclComm& comm) {
  straitComm_t strait = nullptr;
  {
    const std::scoped_lock lock(comm.mutex);
    strait = comm.strait;
  }
  if (strait != nullptr) (void)straitCommSynchronize(strait);  // the error of the aborted calls is known already
}

/// Whether the communicator was made by the parent of this forked process. The child has a copy of it, but none of the
/// threads that set it up or use it: waiting for them would never end.
bool is_inherited(const ncclComm& comm) { return comm.process != getpid(); }

ncclResult_t refuse_inherited(const char* function) {
  return failed(ncclInvalidUsage, std::string(function) +
                                      ": the communicator is that of the process which this one was forked from. A "
                                      "child may make its own");
}

/// Returns what ncclCommGetAsyncError reports of set-up work. During another thread's blocking split this is
/// ncclSuccess, not ncclInProgress: some programs' watchdog threads take every other result for a failure.
ncclResult_t state_of(ncclComm& comm) {
  const ncclResult_t progress = comm.progress.load(std::memory_order_acquire);
  if (progress != ncclInProgress) return progress;
  const std::scoped_lock lock(comm.mutex);
  return comm.set_ups > 0 && !comm.is_polled ? ncclSuccess : comm.progress.load(std::memory_order_relaxed);
}

}  // namespace
}  // namespace strait::nccl

using namespace strait::nccl;

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;  // as in NCCL
  return with_comm(comm, "ncclCommFinalize", [](ncclComm& live) {
    if (live.is_revoked)
      return failed(ncclInvalidArgument, "ncclCommFinalize: the communicator was revoked (ncclCommRevoke)");
    if (live.is_finalized.exchange(true))
      return failed(ncclInvalidArgument, "ncclCommFinalize: the communicator is finalized already");
    const ncclResult_t result = Group::of_this_thread().finalize(&live);
    if (result != ncclSuccess && result != ncclInProgress) live.is_finalized = false;
    return result;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  return guarded([&] {
    if (comm == nullptr) return ncclSuccess;
    if (const ncclResult_t result = endable(comm, "ncclCommDestroy"); result != ncclSuccess) return result;
    if (is_inherited(*comm)) {  // all its resources belong to the parent
      retire(comm);
      return ncclSuccess;
    }
    hold(comm);  // another thread may abort the communicator during the wait
    await_set_up(*comm);
    if (retire(comm)) let_go(comm);
    return checked(let_go(comm));
  });
}

namespace {

/// Whether an abort would find nothing to end. If so, the program uses ncclCommAbort to free a communicator that it no
/// longer needs (as shutdown() of some PyTorch versions does), and peers that are not done yet must not be told of it.
/// Counts the abort as a stop in this case.
bool is_idle(ncclComm& comm) {
  const std::scoped_lock lock(comm.mutex);
  if (comm.running != 0 || comm.holders != 1 || comm.set_ups != 0 || comm.joining != nullptr) return false;
  int done = 0;
  if (comm.strait == nullptr || straitCommQuery(comm.strait, &done) != straitSuccess || done == 0) return false;
  ++comm.stops;
  return true;
}

}  // namespace

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  return guarded([&] {
    if (comm == nullptr) return ncclSuccess;
    if (const ncclResult_t result = endable(comm, "ncclCommAbort"); result != ncclSuccess) return result;
    if (!retire(comm)) return ncclSuccess;  // another thread is ending it
    if (is_inherited(*comm)) return refuse_inherited("ncclCommAbort");
    const ncclResult_t result = is_idle(*comm) ? ncclSuccess : stop(*comm);
    // Kernels of other communicators that this group is still to abort may hang on the same GPU, and freeing this one
    // would wait for them. So it is freed at the end of the group, when all of them are stopped.
    if (Group& group = Group::of_this_thread(); group.is_open()) {
      group.end_later(comm);
      return result;
    }
    const straitResult_t ended = end_stopped({comm});
    return result == ncclSuccess ? checked(ended) : result;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags) {
  return guarded([&] {
    if (comm == nullptr) return ncclSuccess;
    if (revokeFlags != 0) return failed(ncclInvalidArgument, "ncclCommRevoke: the flags must be 0");
    ncclComm* live = live_comm(comm);
    if (live == nullptr)
      return failed(ncclInvalidArgument, "ncclCommRevoke: this is not a communicator, or it was destroyed");
    if (is_inherited(*live)) return refuse_inherited("ncclCommRevoke");
    // NCCL refuses it from the beginning of a finalization. Here it ends one that hangs.
    if (live->is_finalized && live->progress != ncclInProgress)
      return failed(ncclInvalidArgument, "ncclCommRevoke: the communicator is finalized");
    if (live->is_revoked.exchange(true))
      return failed(ncclInvalidArgument, "ncclCommRevoke: the communicator is revoked already");
    const Running running(live);
    const ncclResult_t result =
        stop(*live);  // also if it is still being made, or if another thread splits it: those calls hang
    live->is_revoked = result == ncclSuccess;
    if (result == ncclSuccess) live->has_ended_itself = true;
    await_gpu(*live);
    return result;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded([&] {
    ncclComm* live = live_comm(comm);
    if (live == nullptr) return failed(ncclInvalidArgument, "ncclCommGetAsyncError: this is not a communicator");
    if (asyncError == nullptr) return failed(ncclInvalidArgument, "ncclCommGetAsyncError: the pointer is NULL");
    if (is_inherited(*live)) return refuse_inherited("ncclCommGetAsyncError");
    *asyncError = state_of(*live);
    if (*asyncError != ncclSuccess || live->strait == nullptr) return ncclSuccess;
    straitResult_t error = straitSuccess;
    if (live->has_ended_itself) return ncclSuccess;
    const ncclResult_t result = checked(straitCommGetAsyncError(live->strait, &error));
    *asyncError = to_nccl(error);
    return result;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
  return with_comm(comm, "ncclCommCount",
                   [&](const ncclComm& live) { return checked(straitCommCount(live.strait, count)); });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
  return with_comm(comm, "ncclCommUserRank",
                   [&](const ncclComm& live) { return checked(straitCommUserRank(live.strait, rank)); });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
  return with_comm(comm, "ncclCommCuDevice",
                   [&](const ncclComm& live) { return checked(straitCommDevice(live.strait, device)); });
}
