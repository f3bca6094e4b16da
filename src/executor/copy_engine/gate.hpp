#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::copy_engine {

/// Holds a call back if an earlier kernel has given up at its deadline, which at first only that kernel's GPU knows.
/// Peers must not get what the kernel left behind, which they would take for a result, before all ranks know that the
/// communicator has failed. (Later kernels on that GPU end at once.)
class Gate {
 public:
  /// Creates a gate that is always open.
  Gate() = default;
  /// `word` is set to 1 by kernels to close the gate. It is in memory that this process and its device address alike,
  /// and is kept by the caller.
  Gate(std::unique_ptr<StreamDriver> driver, std::uint32_t* word) : driver_(std::move(driver)), word_(word) {}

  /// Makes what comes next on the stream wait while the gate is closed.
  Status wait_if_closed(StreamDriver::Stream stream) {
    if (word_ == nullptr) return {};
    const MemoryOperation wait{.kind = MemoryOperation::Kind::wait_equal, .word = word_, .value = 0};
    return driver_->operate(std::span(&wait, 1), stream);
  }
  /// Opens the gate. To be called repeatedly once the communicator has failed, because a kernel that still runs may
  /// close it again.
  void open() {
    if (word_ != nullptr) std::atomic_ref(*word_).store(0, std::memory_order_release);
  }

 private:
  std::unique_ptr<StreamDriver> driver_;
  std::uint32_t* word_ = nullptr;
};

}  // namespace strait::copy_engine
