#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/error.hpp"

struct CUevent_st;

namespace strait {

/// Calls of a communicator run one after another on its GPU, whatever streams they are given. Streams are the user's,
/// who may destroy one as soon as its calls are enqueued: what is kept of a call is an event behind it. Calls that are
/// captured run when their graph is launched: they come after one another, and what is called outside of the capture
/// still waits for what was called so before.
class CallOrder {
 public:
  CallOrder() = default;
  static Result<CallOrder> create(int device);
  ~CallOrder();
  CallOrder(CallOrder&& other) noexcept { *this = static_cast<CallOrder&&>(other); }
  CallOrder& operator=(CallOrder&& other) noexcept;

  /// Before a call is given to the stream, and after. One call at a time.
  Status begin(void* stream);
  Status end(void* stream);
  /// What comes next on `then` waits for what is on `first` now.
  Status order(void* first, void* then);
  bool has_run() const { return has_run_; }
  /// Whether the GPU has finished all that was enqueued; nothing where that cannot be known. From any thread.
  std::optional<bool> is_idle() const;

 private:
  using Event = CUevent_st*;
  /// The last call outside of captures, and that of the last capture.
  struct Last {
    Event done = nullptr;
    bool exists = false;
    std::uint64_t stream_id = 0;   ///< streams have numbers of their own; addresses come again
    std::uint64_t capture_id = 0;  ///< of a capture: which
  };
  int device_ = 0;
  Last eager_, captured_;
  Event order_ = nullptr;
  std::atomic<bool> has_run_ = false, has_captured_ = false;
};

}  // namespace strait
