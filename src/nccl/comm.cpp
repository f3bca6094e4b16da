#include "nccl/comm.hpp"

namespace strait::nccl {

straitResult_t let_go(ncclComm* comm) {
  if (comm->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return straitSuccess;
  const straitResult_t result = straitCommDestroy(comm->strait);
  delete comm;
  return result;
}

ncclResult_t usable(const ncclComm* handle, std::string& problem) {
  ncclComm* comm = live_comm(handle);
  if (comm == nullptr) {
    problem = handle == nullptr ? "the communicator is NULL" : "this is not a communicator, or it was destroyed";
    return ncclInvalidArgument;
  }
  const ncclResult_t progress = comm->progress.load(std::memory_order_acquire);
  if (progress == ncclInProgress) {
    problem = "the communicator is still being set up. Poll ncclCommGetAsyncError until it is not ncclInProgress";
    return ncclInvalidArgument;
  }
  if (comm->strait == nullptr) {
    const std::scoped_lock lock(comm->mutex);
    problem = "the communicator was never set up: " + comm->setup_error;
    return progress == ncclSuccess ? ncclInvalidUsage : progress;
  }
  return ncclSuccess;
}

}  // namespace strait::nccl
