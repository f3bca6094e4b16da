#include "nccl/comm.hpp"

#include <pthread.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr auto poll_interval = std::chrono::microseconds(100);
/// Running calls notice an abort within milliseconds. After this time they are no longer waited for.
constexpr auto longest_abort = std::chrono::seconds(10);

void await_calls(const ncclComm& comm, Time deadline) {
  while (comm.running.load(std::memory_order_acquire) != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      log(LogLevel::warn, "a call on an aborted communicator has not returned after 10 s; its resources remain");
      return;
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

/// Handles that programs hold. Never destroyed, because destructors of their static objects may still call.
struct HandedOut {
  std::mutex mutex;
  std::unordered_set<const ncclComm*> handles;
};

HandedOut& handed_out() {
  static auto* const all = new HandedOut;
  // Another thread may hold the mutex when this process forks; nobody would unlock the child's copy.
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { all->mutex.lock(); }, [] { all->mutex.unlock(); }, [] { all->mutex.unlock(); });
  return *all;
}

}  // namespace

void hand_out(ncclComm* comm) {
  HandedOut& all = handed_out();
  const std::scoped_lock lock(all.mutex);
  all.handles.insert(comm);
}

void use_if_handed_out(const ncclComm* handle, const std::function<void(ncclComm&)>& use) {
  HandedOut& all = handed_out();
  const std::scoped_lock lock(all.mutex);
  if (all.handles.contains(handle)) use(const_cast<ncclComm&>(*handle));  // as in live_comm()
}

/// The program's hold keeps the communicator until its handle has left the set.
bool retire(ncclComm* comm) {
  if (comm->mark.exchange(0) != ncclComm::live) return false;
  HandedOut& all = handed_out();
  const std::scoped_lock lock(all.mutex);
  all.handles.erase(comm);
  return true;
}

straitResult_t let_go(ncclComm* comm) {
  if (comm->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return straitSuccess;
  const straitResult_t result = straitCommDestroy(comm->strait);
  delete comm;
  return result;
}

ncclResult_t stop(ncclComm& comm) {
  const std::scoped_lock lock(comm.mutex);
  ++comm.stops;
  ncclResult_t result = ncclSuccess;
  for (straitComm_t strait : {comm.joining, comm.strait})
    if (strait != nullptr)
      if (const ncclResult_t aborted = checked(straitCommAbort(strait)); result == ncclSuccess) result = aborted;
  return result;
}

straitResult_t end_stopped(const std::vector<ncclComm*>& comms) {
  const Time deadline = std::chrono::steady_clock::now() + longest_abort;
  for (const ncclComm* comm : comms) await_calls(*comm, deadline);
  straitResult_t first = straitSuccess;
  for (ncclComm* comm : comms)
    if (const straitResult_t result = let_go(comm); first == straitSuccess) first = result;
  return first;
}

namespace {

/// Returns the set-up work that keeps the communicator from being used; "" if there is none.
std::string busy_with(ncclComm& comm, Use use) {
  if (comm.progress.load(std::memory_order_acquire) != ncclInProgress) return {};
  const std::scoped_lock lock(comm.mutex);
  if (comm.progress.load(std::memory_order_relaxed) != ncclInProgress) return {};
  const bool gives_back = use == Use::to_give_back && comm.strait != nullptr;
  if (gives_back) return {};
  if (comm.strait == nullptr || comm.is_polled)
    return "the communicator is still being set up, split or finalized. Poll ncclCommGetAsyncError until it is not "
           "ncclInProgress";
  if (use == Use::beside_set_up) return {};
  return "another thread splits, shrinks or finalizes the communicator, and has not returned from that";
}

}  // namespace

ncclResult_t usable(const ncclComm* handle, std::string& problem, Use use) {
  ncclComm* comm = live_comm(handle);
  if (comm == nullptr) {
    problem = handle == nullptr ? "the communicator is NULL" : "this is not a communicator, or it was destroyed";
    return ncclInvalidArgument;
  }
  problem = busy_with(*comm, use);
  if (!problem.empty()) return ncclInvalidArgument;
  if (comm->strait == nullptr) {
    const std::scoped_lock lock(comm->mutex);
    problem = "the communicator was never set up: " + comm->setup_error;
    return comm->setup_result == ncclSuccess ? ncclInvalidUsage : comm->setup_result;
  }
  return ncclSuccess;
}

}  // namespace strait::nccl
