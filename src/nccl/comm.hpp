#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl/nccl_abi.h"
#include "nccl/result.hpp"
#include "nccl/settings.hpp"
#include "strait/strait.h"

/// A window on registered memory. For the host only: no kernel may follow its handle.
struct ncclWindow_vidmem {
  static constexpr std::uint64_t live = 0x6e63636c57696e64ull;
  std::atomic<std::uint64_t> mark{live};  ///< see ncclComm::mark
  void* pointer = nullptr;
  std::size_t size_bytes = 0;
  int rank = 0, ranks = 0;
  void* registration = nullptr;  ///< Strait's; NULL: peers do not read this memory in place
  /// An open group, perhaps of another thread, is still to register it. Guarded by the communicator's mutex.
  bool awaits_group = false;
  ~ncclWindow_vidmem() { mark.store(0); }  // atomic: else the compiler leaves it out, as nobody may read it any more
};

/// What a program holds as ncclComm_t: Strait's communicator once it is there, and what NCCL's rules need around it.
/// Lives until its last holder lets go: the program's handle, set-up work in the background, calls in progress, and
/// open groups with calls on it.
struct ncclComm {
  static constexpr std::uint64_t live = 0x6e63636c436f6d6dull;
  /// A live handle carries the mark; a destroyed or foreign pointer most likely does not.
  std::atomic<std::uint64_t> mark{live};

  const pid_t process = getpid();
  const bool is_on_host = strait::nccl::makes_host_ranks();

  bool is_blocking = true;
  int max_sms = 0;                       ///< by the configuration (max_sms_of)
  std::uint64_t known_parent_stops = 0;  ///< that had come when this was asked for: later ones are meant for it, too
  /// Of the last set-up work: this communicator's own, or that of parts split off it, until all of them are over.
  std::atomic<ncclResult_t> progress{ncclInProgress};
  straitComm_t strait = nullptr;  ///< written before `progress` leaves ncclInProgress
  std::atomic<bool> is_finalized{false};
  /// By ncclCommRevoke or NCCL_SHRINK_ABORT: that it has failed then is no news, and as in NCCL no error.
  std::atomic<bool> has_ended_itself{false};
  std::atomic<bool> hangs{false};  ///< a window was given back in vain: later ones wait no more

  std::atomic<int> holders{1};
  std::atomic<int> running{0};  ///< calls inside Strait

  std::mutex mutex;                         ///< guards what follows
  int set_ups = 0;                          ///< that have begun, and are not over
  bool is_polled = false;                   ///< for one of these; else the calls that wait for them say how they end
  ncclResult_t setup_result = ncclSuccess;  ///< of these: the first error
  std::string setup_error;
  std::uint64_t stops = 0;                           ///< by ncclCommAbort and ncclCommRevoke
  straitComm_t joining = nullptr;                    ///< what else ncclCommAbort ends: see Joining
  std::vector<std::unique_ptr<char>> registrations;  ///< by address only
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows;
};

namespace strait::nccl {

/// The communicator if the handle is one, else NULL.
inline ncclComm* live_comm(const ncclComm* handle) {
  auto* comm = const_cast<ncclComm*>(handle);  // the ABI's const means no more than the pointer
  return comm != nullptr && comm->mark.load(std::memory_order_relaxed) == ncclComm::live ? comm : nullptr;
}

/// Has peers read the window's memory in place, if all ranks can; success also where they cannot. Collective.
ncclResult_t share(ncclComm& comm, ncclWindow_vidmem& window);

/// Ends the program's handle; whoever gets true lets go of the program's hold. Two threads may try.
inline bool retire(ncclComm* comm) { return comm->mark.exchange(0) == ncclComm::live; }

inline void hold(ncclComm* comm) { comm->holders.fetch_add(1, std::memory_order_relaxed); }
/// Where a program's handle is among those given out; end() if it is none of them.
template <class T>
auto find_handle(std::vector<std::unique_ptr<T>>& owned, const void* handle) {
  return std::find_if(owned.begin(), owned.end(), [&](const auto& one) { return one.get() == handle; });
}

/// The last one frees Strait's communicator, too.
straitResult_t let_go(ncclComm* comm);

/// Makes what runs on the communicator, or is being set up with it, end soon. Waits for nothing.
ncclResult_t stop(ncclComm& comm);
/// Waits for the calls that run on stopped communicators, then lets go of these. What frees one waits for the GPU, and
/// so for the kernels of others: all that hang there have to be stopped before.
straitResult_t end_stopped(const std::vector<ncclComm*>& comms);

inline void begin_call(ncclComm* comm) { comm->running.fetch_add(1, std::memory_order_relaxed); }
inline void end_call(ncclComm* comm) { comm->running.fetch_sub(1, std::memory_order_release); }

/// Holds a communicator for the length of a call, and counts the call as running.
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

/// Whether the communicator can be used now; else the result to return, with `problem` filled in. Queries and changes
/// of this rank alone have it also beside another thread's blocking set-up work.
/// To give memory back, even beside what it has to poll: PyTorch does that before it aborts a finalization that hangs.
enum class Use { alone, beside_set_up, to_give_back };
ncclResult_t usable(const ncclComm* handle, std::string& problem, Use use = Use::alone);

/// Runs `body(comm)` on a communicator that can be used: queries and changes that no group defers.
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
