#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nccl/nccl_abi.h"
#include "nccl/result.hpp"
#include "nccl/settings.hpp"
#include "strait/strait.h"

/// What a program holds as ncclWindow_t: a range of memory registered by ncclCommWindowRegister, owned by its
/// communicator. Only the host can use the handle: it is not a device-side window that kernels can dereference.
struct ncclWindow_vidmem {
  static constexpr std::uint64_t live = 0x6e63636c57696e64ull;
  std::atomic<std::uint64_t> mark{live};  ///< validity mark; see ncclComm::mark
  void* pointer = nullptr;
  std::size_t size_bytes = 0;
  int rank = 0, ranks = 0;
  void* registration = nullptr;  ///< Strait's registration handle; NULL if peers do not access this memory in place
  /// True while the registration is recorded in an open group (possibly another thread's) that has not ended yet; the
  /// window must not be deregistered until then. Guarded by the communicator's mutex.
  bool awaits_group = false;
  ~ncclWindow_vidmem() { mark.store(0); }  // atomic: a plain store to a dying object could be optimised away
};

/// What a program holds as ncclComm_t: Strait's communicator, once it exists, and the state that NCCL's rules require
/// around it. Reference-counted (`holders`): it lives until the program's handle, set-up work in the background, calls
/// in progress and open groups that recorded calls on it have all released it.
struct ncclComm {
  static constexpr std::uint64_t live = 0x6e63636c436f6d6dull;
  /// `live` while the handle is valid. A destroyed or foreign pointer most likely does not contain this value.
  std::atomic<std::uint64_t> mark{live};

  const pid_t process = getpid();
  const bool is_on_host = strait::nccl::makes_host_ranks();

  bool is_blocking = true;
  int max_sms = 0;  ///< thread blocks per operation, from the configuration; see max_sms_of()
  /// The parent's `stops` when this communicator was requested. Stops of the parent that come later also apply to this
  /// communicator.
  std::uint64_t known_parent_stops = 0;
  /// Result of the latest set-up work (making this communicator, splitting or shrinking it, finalizing it). Stays
  /// ncclInProgress until all such work that has begun is over.
  std::atomic<ncclResult_t> progress{ncclInProgress};
  straitComm_t strait = nullptr;  ///< written before `progress` leaves ncclInProgress
  std::atomic<bool> is_finalized{false};
  std::atomic<bool> is_revoked{false};
  /// Set by ncclCommRevoke and NCCL_SHRINK_ABORT. As in NCCL, the failure that they cause is not reported as an error
  /// afterwards.
  std::atomic<bool> has_ended_itself{false};
  /// Deregistering a window timed out waiting for the GPU: later deregistrations do not wait.
  std::atomic<bool> deregister_timed_out{false};

  std::atomic<int> holders{1};
  std::atomic<int> running{0};  ///< number of calls in progress inside Strait

  std::mutex mutex;  ///< guards what follows
  int set_ups = 0;   ///< number of pieces of set-up work in progress
  /// Whether the program must poll for one of them; otherwise the calls that wait for them return their result.
  bool is_polled = false;
  ncclResult_t setup_result = ncclSuccess;  ///< first error among them
  std::string setup_error;
  std::uint64_t stops = 0;           ///< number of ncclCommAbort and ncclCommRevoke calls so far
  straitComm_t joining = nullptr;    ///< a Strait communicator being made, which an abort must reach; see AbortTarget
  std::set<ncclRedOp_t> reductions;  ///< those that the program has created
  std::vector<std::unique_ptr<char>> registrations;  ///< handles of ncclCommRegister; only their addresses matter
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows;
};

namespace strait::nccl {

/// Returns the communicator if the handle is valid, otherwise NULL.
inline ncclComm* live_comm(const ncclComm* handle) {
  auto* comm = const_cast<ncclComm*>(handle);  // the const of the ABI applies to the handle, not to what it points to
  return comm != nullptr && comm->mark.load(std::memory_order_relaxed) == ncclComm::live ? comm : nullptr;
}

/// Registers the window's memory with Strait, so that peers can access it in place. Collective. Succeeds also if the
/// memory cannot be registered (operations on it work all the same); returns an error only if the communicator has
/// failed.
ncclResult_t share(ncclComm& comm, ncclWindow_vidmem& window);

/// Records that the program gets the handle. Call it before the handle is stored.
void hand_out(ncclComm* comm);
/// Calls `use` if the handle was handed out and not retired since. Otherwise reads nothing where it points to, so that
/// any pointer will do. The communicator stays meanwhile, without a hold that would make it seem to be in use.
void use_if_handed_out(const ncclComm* handle, const std::function<void(ncclComm&)>& use);
/// Invalidates the program's handle. If several threads call this, exactly one gets true; it must then release the
/// program's hold by let_go().
bool retire(ncclComm* comm);

inline void hold(ncclComm* comm) { comm->holders.fetch_add(1, std::memory_order_relaxed); }
/// Finds a program's handle among the objects handed out; returns end() if it is not one of them.
template <class T>
auto find_handle(std::vector<std::unique_ptr<T>>& owned, const void* handle) {
  return std::find_if(owned.begin(), owned.end(), [&](const auto& one) { return one.get() == handle; });
}

/// Releases one hold. The last one destroys the object and Strait's communicator, and returns the result of the latter.
straitResult_t let_go(ncclComm* comm);

/// Aborts the calls that run on the communicator and the set-up work in progress with it. Does not wait for them to
/// end.
ncclResult_t stop(ncclComm& comm);
/// Waits (at most 10 s) until no call runs on the stopped communicators, then releases one hold on each. Freeing a
/// communicator waits for its GPU, including kernels of other communicators: stop all communicators that hang on that
/// GPU before this call.
straitResult_t end_stopped(const std::vector<ncclComm*>& comms);

inline void begin_call(ncclComm* comm) { comm->running.fetch_add(1, std::memory_order_relaxed); }
inline void end_call(ncclComm* comm) { comm->running.fetch_sub(1, std::memory_order_release); }

/// Holds a communicator for the duration of a call, and counts the call as running.
class Running {
 public:
  explicit Running(ncclComm* comm) : comm_(comm) {
    hold(comm_);
    begin_call(comm_);
  }
  ~Running() {
    end_call(comm_);
    let_go(comm_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  ncclComm* comm_;
};

/// What a call does, which decides whether it may run while set-up work is in progress on the communicator:
/// - alone: an operation or a collective call. It may not.
/// - beside_set_up: a query or a change that concerns this rank only. It may run during another thread's blocking
///   set-up work.
/// - to_give_back: a deregistration. It may also run during set-up work that the program polls: PyTorch deregisters its
///   memory before it aborts a finalization that hangs.
enum class Use { alone, beside_set_up, to_give_back };
/// Returns ncclSuccess if the communicator can be used now; otherwise the result to return to the program, with
/// `problem` set.
ncclResult_t usable(const ncclComm* handle, std::string& problem, Use use = Use::alone);

/// Runs `body(comm)` if the communicator can be used. For queries and for changes that are never deferred to the end of
/// a group. An exception becomes an error result.
template <class F>
ncclResult_t with_comm(const ncclComm* handle, const char* function, F&& body, Use use = Use::beside_set_up) noexcept {
  return guarded([&] {
    std::string problem;
    if (const ncclResult_t result = usable(handle, problem, use); result != ncclSuccess)
      return failed(result, std::string(function) + ": " + problem);
    ncclComm* comm = live_comm(handle);
    if (comm == nullptr) return failed(ncclInvalidArgument, std::string(function) + ": another thread destroyed it");
    const Running running(comm);
    return body(*comm);
  });
}

}  // namespace strait::nccl
