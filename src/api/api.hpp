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

/// What the files of the C interface share: live handles, and how errors become results. api.cpp holds the library and
/// its memory, communicators.cpp the life of communicators, collectives.cpp the operations and the calls that begin and
/// end groups, group.cpp what a group has recorded and how it runs.

/// A live handle carries the mark; a destroyed or foreign pointer most likely does not.
struct straitComm {
  static constexpr std::uint64_t live = 0x5374726169744c69ull;
  std::uint64_t mark = live;
  const std::uint32_t fork_generation = strait::fork_generation();
  std::unique_ptr<strait::Comm> comm;  ///< once `is_ready`
  std::atomic<bool> is_ready{false};
  std::atomic<bool> is_cancelled{false};  ///< straitCommAbort has come; who makes the communicator looks

  void complete(std::unique_ptr<strait::Comm> joined) {
    comm = std::move(joined);
    is_ready = true;
    if (is_cancelled) comm->abort();
  }
  /// A forked child has a copy of its parent's communicator, but none of the threads behind it, and shares with it what
  /// peers see.
  bool is_inherited() const { return fork_generation != strait::fork_generation(); }
  /// From any thread, also while another one is joining.
  void abort() {
    const Abort in_progress(aborts_);
    is_cancelled = true;
    if (is_ready) comm->abort();
  }
  /// A call that an abort has ended may have been its thread's last but for straitCommDestroy, which comes while the
  /// abort is still telling others: which ends soon, for it waits for nobody else.
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
  std::atomic<int> aborts_{0};  ///< in progress
};

namespace strait::api {

/// Kept for straitGetLastError.
straitResult_t result_of(const Error& error);
straitResult_t result_of(const Status& status);
straitResult_t invalid(std::string message);
/// Needs no memory.
straitResult_t out_of_memory() noexcept;
/// The result of a call that may stand in a group, which its error spoils.
straitResult_t result_in_group(const Status& status);

/// Nothing thrown (the one thing that is: bad_alloc) crosses the C interface.
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

Result<Comm*> comm_of(straitComm_t handle);

template <class F>
straitResult_t with_comm(straitComm_t handle, F&& body) noexcept {
  return guarded([&] {
    auto comm = comm_of(handle);
    if (!comm) return result_of(comm.error());
    return body(**comm);
  });
}

/// Nothing for straitWireDefault.
Result<std::optional<WireFormat>> wire_of(int format);

/// Of a `max_sms` in a configuration or options; an error goes on from there.
Result<std::uint32_t> sms_of(int max_sms);

Result<Deadline> init_deadline(const CommOptions& options);

}  // namespace strait::api
