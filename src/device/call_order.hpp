#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"
#include "kernels/launch.hpp"

namespace strait {

/// Calls of a communicator run one after another on its GPU, whatever streams they are given. Streams are the user's,
/// who may destroy one as soon as its calls are enqueued: nothing is asked of a call's stream later. What a call on
/// another stream waits for is
///  - the number of blocks that have ended (kernels::LaunchCounts::finished), if the last work of the call before is a
///  launch
///    that counts its own. That costs the host nothing, and lets the next kernel of the stream begin early;
///  - else an event behind the call.
/// Calls that are captured run when their graph is launched, and count nothing. Within their capture they come after
/// one another. From the first capture on an event joins graphs and the calls outside of them: a launch of a graph
/// waits at its first call for the call, or the launch, that came before it, and marks the event behind its last one.
/// So they run in the order in which the host has launched them, as with NCCL, which joins them likewise
/// (NCCL_GRAPH_MIXING_SUPPORT).
class CallOrder {
 public:
  struct Setup {
    std::unique_ptr<copy_engine::StreamDriver> driver;
    std::unique_ptr<copy_engine::StreamDriver> reader;  ///< another one of the same device, for is_idle()
    kernels::LaunchCounts* counts = nullptr;            ///< in this device's memory: zeros, and of nobody else
    kernels::LaunchCounts* seen = nullptr;              ///< in pinned host memory
    bool joins_graphs = true;  ///< if not, the user orders launches of graphs and all calls outside of them
  };
  /// The words of the setup outlive this, which outlives all that was enqueued.
  static Result<std::unique_ptr<CallOrder>> open(Setup setup);
  ~CallOrder();
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  /// What a call has enqueued last.
  enum class Tail : std::uint8_t { counted_launch, other };
  /// Whether the stream is being captured. The begin() that follows, if it is of this stream, does not ask again.
  Result<bool> look_at(void* stream);
  /// Before a call is given to the stream, and after. One call at a time.
  Status begin(void* stream);
  Status end(void* stream, Tail tail);
  /// Of the call that has begun: where its launches count. Null: they do not.
  std::uint32_t* finished() const { return is_captured() ? nullptr : &setup_.counts->finished; }
  bool is_captured() const { return capture_id() != 0; }
  std::uint64_t capture_id() const { return now_.capture_id; }
  /// A launch that counts there was made.
  void launched(std::uint32_t blocks) {
    if (!is_captured()) launched_ += blocks;
  }
  /// What comes next on `then` waits for what is on `first` now.
  Status order(void* first, void* then);
  /// Whether the GPU has finished all that was enqueued, launches of graphs too; nothing where that cannot be known
  /// now. From any thread.
  std::optional<bool> is_idle();
  /// Until it has, or the device has failed. Kernels end by themselves, or by the abort word that attendants raise, and
  /// with them streams that wait for them. Not a word is asked of other work on the GPU: other communicators' kernels
  /// may wait for what this thread does next. False: it did not end, 10 s after `has_failed()`, of the communicator.
  bool await_idle(const std::function<bool()>& has_failed);
  /// The error of that, of a GPU of this process.
  static Status has_not_ended(int device);
  /// Likewise, of a rank that ends all the same, without freeing what that may use.
  static void warn_not_ended(std::uint32_t rank, int device);
  /// Whether the device has failed, so that nothing is done any more. Waits for nothing on it. From any thread.
  bool has_failed() { return !setup_.driver->has_passed(done_); }
  /// What the GPU has begun, and what of it has ended; nothing where it does not answer. From any thread; CUDA
  /// may hold it up for as long as kernels run.
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
  struct Capture {
    copy_engine::StreamState stream;  ///< of its last call
    Event done = nullptr;             ///< behind that
    copy_engine::GraphEnd end;
  };
  explicit CallOrder(Setup setup) : setup_(std::move(setup)) {}
  Status begin_captured(void* stream);
  Status join_graphs();

  Setup setup_;
  std::optional<void*> looked_at_;  ///< what now_ is of, until begin()
  copy_engine::StreamState now_;    ///< of the call that has begun
  Last last_;
  Event done_ = nullptr;  ///< behind it, where it is no counted launch, and behind launches of graphs
  Event order_ = nullptr;
  bool joined_ = false;           ///< the event joins all calls
  std::deque<Capture> captures_;  ///< the latest ones; the last call's first
  Stream joining_stream_ = nullptr;
  std::atomic<std::uint32_t> launched_ = 0;  ///< blocks that count, modulo 2^32 as what they count
  std::atomic<bool> has_run_ = false;
  std::mutex reading_;
  Stream reading_stream_ = nullptr;  ///< from the first question on
};

}  // namespace strait
