#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::copy_engine {

/// Before a call: a kernel before it may have given up at its deadline, of which only its own GPU knows so far. What it
/// left behind must not go to peers, who would take it for a result, before all ranks know that the communicator has
/// failed. (Kernels that come behind such a one end at once.)
class Gate {
 public:
  /// Always open.
  Gate() = default;
  /// `word`: kernels write 1 there to shut it. As this process and its device address it; kept by the caller.
  Gate(std::unique_ptr<StreamDriver> driver, std::uint32_t* word) : driver_(std::move(driver)), word_(word) {}

  /// What comes next on the stream waits while it is shut.
  Status hold(StreamDriver::Stream stream) {
    if (word_ == nullptr) return {};
    const MemoryOperation wait{.kind = MemoryOperation::Kind::wait_equal, .word = word_, .value = 0};
    return driver_->operate(std::span(&wait, 1), stream);
  }
  /// When the communicator has failed, again and again: a kernel that still runs may shut it once more.
  void open() {
    if (word_ != nullptr) std::atomic_ref(*word_).store(0, std::memory_order_release);
  }

 private:
  std::unique_ptr<StreamDriver> driver_;
  std::uint32_t* word_ = nullptr;
};

}  // namespace strait::copy_engine
