#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/time_limited_questions.hpp"
#include "executor/copy_engine/stream_driver.hpp"
#include "kernels/launch.hpp"

namespace strait {

/// Orders the calls of a communicator: they run one after another on its GPU, whatever streams they are given. Streams
/// belong to the user, who may destroy one as soon as its calls are enqueued, so no stream is used again after its
/// call. A call on another stream than the previous call's waits for
///  - the number of blocks that have ended (kernels::LaunchCounts::finished), if the last work of the previous call is
///    a launch that counts its blocks. That costs the host nothing, and lets the next kernel of the stream begin early;
///  - otherwise an event recorded behind the previous call.
/// Captured calls run when their graph is launched, and count nothing. Within their capture they are ordered one after
/// another. From the first capture on, an event orders graphs and the calls outside of graphs: a graph launch waits at
/// its first call for the call or graph launch before it, and records the event behind its last call. So they run in
/// the order in which the host has launched them, as with NCCL (NCCL_GRAPH_MIXING_SUPPORT). One thread at a time,
/// except for functions that may be called from any thread.
class CallOrder {
 public:
  struct Setup {
    std::unique_ptr<copy_engine::StreamDriver> driver;
    std::unique_ptr<copy_engine::StreamDriver> reader;  ///< a second one of the same device, to read `counts`
    kernels::LaunchCounts* counts = nullptr;            ///< zeroed memory of this device, for this object alone
    kernels::LaunchCounts* seen = nullptr;              ///< pinned host memory, for a copy of `counts`
    bool joins_graphs = true;                           ///< if false, the user orders graph launches and other calls
  };
  /// `counts` and `seen` must outlive the object, and the object must outlive everything that was enqueued.
  static Result<std::unique_ptr<CallOrder>> open(Setup setup);
  ~CallOrder();
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  /// What a call has enqueued last: a launch that counts its blocks, or something else.
  enum class Tail : std::uint8_t { counted_launch, other };
  /// Returns whether the stream is being captured. If begin() on the same stream follows, it does not ask the driver
  /// again.
  Result<bool> look_at(void* stream);
  /// To be called before and after a call is enqueued on the stream: begin() makes the stream wait for the previous
  /// call, and end() marks the end of this one. One call at a time.
  Status begin(void* stream);
  Status end(void* stream, Tail tail);
  /// Returns the device word that the blocks of the current call's launches increment when they end, or null if the
  /// call is captured (captured launches are not counted).
  std::uint32_t* finished() const { return is_captured() ? nullptr : &setup_.counts->finished; }
  bool is_captured() const { return capture_id() != 0; }
  std::uint64_t capture_id() const { return now_.capture_id; }
  /// Notes a launch of `blocks` blocks that increment finished().
  void launched(std::uint32_t blocks) {
    if (!is_captured()) launched_ += blocks;
  }
  /// Makes later work on `then` wait for the work that is on `first` now, unless only one of them is being captured, or
  /// both into different graphs.
  Status order(void* first, void* then);
  /// Returns whether the GPU has finished everything that was enqueued, including graph launches; nothing if that
  /// cannot be determined now. From any thread.
  std::optional<bool> is_idle();
  /// Waits until is_idle(), or until the device has failed. Kernels end by themselves, or by the abort word that
  /// attendant threads set, and then so do streams that wait for them. Waits for no other work on the GPU, because
  /// other communicators' kernels may wait for what this thread does next. `has_failed`: whether the communicator has
  /// failed. Returns false if the work has not ended 10 s after that.
  bool await_idle(const std::function<bool()>& has_failed);
  /// Returns the error of a call for which await_idle() returned false. `device`: of this process.
  static Status has_not_ended(int device);
  /// Warns that `rank`'s communicator is destroyed although its work has not ended, so that its memory of GPU `device`
  /// is leaked on purpose.
  static void warn_not_ended(std::uint32_t rank, int device);
  /// Returns whether the device has failed, so that nothing is executed any more. Waits for no work on it. From any
  /// thread.
  bool device_has_failed() { return !setup_.driver->has_passed(done_); }
  /// Returns a copy of the counters of launches that have begun and ended; nothing if the GPU does not answer in time.
  /// From any thread; CUDA may block the caller for as long as kernels run.
  std::optional<kernels::LaunchCounts> read_counts();

 private:
  using Event = copy_engine::StreamDriver::Event;
  using Stream = copy_engine::StreamDriver::Stream;
  /// The last call outside of captures.
  struct Last {
    bool exists = false;
    Tail tail = Tail::other;
    copy_engine::StreamState stream;
  };
  /// A capture in which calls were made.
  struct Capture {
    copy_engine::StreamState stream;  ///< stream of its last call
    Event done = nullptr;             ///< recorded behind that call
    copy_engine::GraphEnd end;
  };
  explicit CallOrder(Setup setup) : setup_(std::move(setup)) {}
  Status begin_captured(void* stream);
  Status join_graphs();

  Setup setup_;
  std::optional<void*> looked_at_;  ///< the stream of now_, between look_at() and begin()
  copy_engine::StreamState now_;    ///< state of the current call's stream
  Last last_;
  /// Recorded behind the last call, unless that is a counted launch and joined_ is false; and by graphs behind their
  /// last call.
  Event done_ = nullptr;
  Event order_ = nullptr;         ///< used by order()
  bool joined_ = false;           ///< done_ orders graphs and the calls outside of them
  std::deque<Capture> captures_;  ///< the latest ones; first that of the last captured call
  Stream joining_stream_ = nullptr;
  std::atomic<std::uint32_t> launched_ = 0;  ///< blocks that increment finished(), modulo 2^32 as that word
  std::atomic<bool> has_run_ = false;
  std::mutex reading_;               ///< one read_counts() at a time
  Stream reading_stream_ = nullptr;  ///< created by the first read_counts()
};

/// Asks for CallOrder::is_idle() with a time limit, again and again while it is not known. Both objects must outlive
/// the questions. From any thread.
std::optional<bool> is_idle_as_asked(TimeLimitedQuestions& questions, CallOrder& order,
                                     std::chrono::milliseconds limit);

}  // namespace strait
