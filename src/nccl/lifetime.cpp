// What is asked of a communicator, and how it ends.
#include <chrono>
#include <thread>

#include "nccl/entry.hpp"
#include "nccl/group.hpp"

namespace strait::nccl {
namespace {

constexpr auto look_every = std::chrono::microseconds(100);

/// A communicator that this call may end: live, and not in this thread's open group.
ncclResult_t endable(ncclComm_t handle, const char* function) {
  if (live_comm(handle) == nullptr)
    return failed(ncclInvalidArgument, std::string(function) + ": this is not a communicator, or it was destroyed");
  if (Group::of_this_thread().keeps(handle))
    return failed(ncclInvalidUsage,
                  std::string(function) + ": the open group holds calls on this communicator. End the group first");
  return ncclSuccess;
}

void await_set_up(const ncclComm& comm) {
  while (comm.progress.load(std::memory_order_acquire) == ncclInProgress) std::this_thread::sleep_for(look_every);
}

/// Until what was ended no longer uses anybody's memory, milliseconds; of a GPU that other work holds up 10 s at most.
void await_gpu(ncclComm& comm) {
  straitComm_t strait = nullptr;
  {
    const std::scoped_lock lock(comm.mutex);
    strait = comm.strait;
  }
  if (strait != nullptr) (void)straitCommSynchronize(strait);  // how it ended is known
}

/// A forked child has a copy of its parent's communicator, but none of the threads that set it up or use it: whoever
/// waited for them would wait for ever.
bool is_inherited(const ncclComm& comm) { return comm.process != getpid(); }

ncclResult_t refuse_inherited(const char* function) {
  return failed(ncclInvalidUsage, std::string(function) +
                                      ": the communicator is that of the process which this one was forked from. A "
                                      "child may make its own");
}

/// A blocking split of it is no news to a watchdog in another thread: some take what is not ncclSuccess for the end.
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
    if (live.is_finalized.exchange(true))
      return failed(ncclInvalidUsage, "ncclCommFinalize: the communicator is finalized already");
    const ncclResult_t result = Group::of_this_thread().finalize(&live);
    if (result != ncclSuccess && result != ncclInProgress) live.is_finalized = false;
    return result;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  return guarded([&] {
    if (comm == nullptr) return ncclSuccess;
    if (const ncclResult_t result = endable(comm, "ncclCommDestroy"); result != ncclSuccess) return result;
    if (is_inherited(*comm)) {  // all that it holds is the parent's
      retire(comm);
      return ncclSuccess;
    }
    hold(comm);  // another thread may abort it meanwhile
    await_set_up(*comm);
    if (retire(comm)) let_go(comm);
    return checked(let_go(comm));
  });
}

namespace {

/// Whether there is nothing for an abort to end. Then it is how a program ends a communicator that it is done with (all
/// that shutdown() of some versions of PyTorch does), of which peers that are not done yet must hear nothing.
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
    if (!retire(comm)) return ncclSuccess;  // another thread is at it
    if (is_inherited(*comm)) return refuse_inherited("ncclCommAbort");
    const ncclResult_t result = is_idle(*comm) ? ncclSuccess : stop(*comm);
    // Kernels of communicators that the group is still to abort may hang on the same GPU, so that this one's end would
    // wait for them: the end of the group comes after all of them are stopped.
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
    const Running running(live);
    const ncclResult_t result =
        stop(*live);  // one that is still being made, or that another thread splits, needs it most
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
