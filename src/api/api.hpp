#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/forks.hpp"
#include "communicator/comm.hpp"
#include "strait/strait.h"

/// Shared by the files that implement the C interface: handles, and the translation of errors to results. api.cpp
/// implements the library and its memory, communicators.cpp the making and ending of communicators, collectives.cpp the
/// operations and the calls that begin and end groups, group.cpp what a group records and how it runs.

/// What a program holds as straitComm_t. `mark` equals `live` while the handle is valid; a destroyed or foreign pointer
/// most likely does not contain this value.
struct straitComm {
  static constexpr std::uint64_t live = 0x5374726169744c69ull;
  std::uint64_t mark = live;
  const std::uint32_t fork_generation = strait::fork_generation();
  std::unique_ptr<strait::Comm> comm;  ///< valid once `is_ready`
  std::atomic<bool> is_ready{false};
  std::atomic<bool> is_cancelled{false};  ///< set by straitCommAbort; checked by the thread that makes the communicator

  void complete(std::unique_ptr<strait::Comm> joined) {
    comm = std::move(joined);
    is_ready = true;
    if (is_cancelled) comm->abort();
  }
  /// Whether this process is a forked child of the one that made the communicator. The child has a copy of the object,
  /// but none of its threads, and shares with its parent the memory that peers see.
  bool is_inherited() const { return fork_generation != strait::fork_generation(); }
  /// Aborts the communicator. May be called from any thread, also while another one is still making the communicator.
  void abort() {
    const Abort in_progress(aborts_);
    is_cancelled = true;
    if (is_ready) comm->abort();
  }
  /// Waits until no abort() is in progress, before the object is destroyed. A thread whose call was ended by an abort
  /// may go on to straitCommDestroy while the aborting thread still notifies other ranks. That takes a short time,
  /// because it waits for nobody.
  void await_aborts() const {
    while (aborts_ != 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  class Abort {
   public:
    explicit Abort(std::atomic<int>& aborts) : aborts_(aborts) { ++aborts_; }
    ~Abort() { --aborts_; }
    Abort(const Abort&) = delete;
    Abort& operator=(const Abort&) = delete;

   private:
    std::atomic<int>& aborts_;
  };
  std::atomic<int> aborts_{0};  ///< calls of abort() in progress
};

namespace strait::api {

/// Stores the error's text for straitGetLastError, and returns its result code.
straitResult_t result_of(const Error& error);
straitResult_t result_of(const Status& status);
straitResult_t invalid(std::string message);
/// Stores and returns an out-of-memory error without allocating.
straitResult_t out_of_memory() noexcept;
/// As result_of(), for a call that may be made in a group: an error makes the open group fail.
straitResult_t result_in_group(const Status& status);

/// Runs `body` and turns exceptions into results: none may cross the C interface. In practice only std::bad_alloc is
/// thrown.
template <class F>
straitResult_t guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& e) {
    try {
      return result_of(Error{Code::internal_error, e.what()});
    } catch (...) {
      return straitInternalError;
    }
  }
}

/// Returns the communicator behind a handle; an error if the handle is invalid, not ready, or inherited by a fork.
Result<Comm*> comm_of(straitComm_t handle);

template <class F>
straitResult_t with_comm(straitComm_t handle, F&& body) noexcept {
  return guarded([&] {
    auto comm = comm_of(handle);
    if (!comm) return result_of(comm.error());
    return body(**comm);
  });
}

/// Converts a straitWireFormat_t; returns nothing for straitWireDefault.
Result<std::optional<WireFormat>> wire_of(int format);

/// Checks and converts `max_sms` of a configuration or of call options. The message of an error continues a text such
/// as "max_sms in the configuration".
Result<std::uint32_t> sms_of(int max_sms);

/// Returns the deadline for making a communicator: after `init_timeout_ms`, or STRAIT_INIT_TIMEOUT_MS if that is 0.
Result<Deadline> init_deadline(const CommOptions& options);

}  // namespace strait::api
