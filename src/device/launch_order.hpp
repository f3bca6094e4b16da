#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait {

/// Orders the starts of kernels of this process's communicators on one GPU. Kernels wait for those of other ranks with
/// all of their blocks, and one call may take nearly all of a GPU. If two calls of different communicators each got a
/// part of two GPUs, one most of the first and the other most of the second, both would wait for ever. So if the
/// communicators' kernels do not fit on the GPU side by side, one starts only when all blocks of those have started
/// that the host has launched before. Then the earliest call can always go on, provided that all ranks make their calls
/// in the same order, those of different communicators, too (as NCCL asks for, and does with
/// NCCL_LAUNCH_ORDER_IMPLICIT). Launches in graphs are not ordered.
class LaunchOrder {
 public:
  using StreamDriver = copy_engine::StreamDriver;
  /// Joins the communicators of `device`, a GPU with `sms` multiprocessors.
  static Result<std::unique_ptr<LaunchOrder>> join(int device, std::uint32_t sms, std::unique_ptr<StreamDriver> driver);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// Calls `launch(event)`, which launches a kernel on `stream`. The kernel must record the event once all of its
  /// blocks have started; null: nobody needs it. `blocks`: the most multiprocessors that this communicator's launches
  /// of this size occupy at a time. From any thread.
  template <class Launch>
  Status launch(std::uint32_t blocks, void* stream, Launch&& launch) {
    const std::scoped_lock lock(gpu_->mutex);  // until it is enqueued, as the others must see an order
    if (gpu_->members.size() < 2) return launch(StreamDriver::Event{});
    STRAIT_TRY(await_others(blocks, stream));
    ++launches_;
    return launch(started_);
  }

 private:
  struct Gpu {
    std::mutex mutex;
    std::vector<LaunchOrder*> members;
  };
  LaunchOrder(std::shared_ptr<Gpu> gpu, std::uint32_t sms, std::unique_ptr<StreamDriver> driver);
  static std::shared_ptr<Gpu> gpu_of(int device);
  Status await_others(std::uint32_t blocks, void* stream);

  const std::shared_ptr<Gpu> gpu_;
  const std::uint32_t sms_;
  const std::unique_ptr<StreamDriver> driver_;
  const std::uint64_t number_;  ///< differs from that of every other object
  StreamDriver::Event started_ = nullptr;
  // Under gpu_->mutex.
  std::uint32_t most_blocks_ = 0;                          ///< of all launches so far
  std::uint64_t launches_ = 0;                             ///< those that recorded started_
  std::unordered_map<std::uint64_t, std::uint64_t> seen_;  ///< by number: the other's launches that are awaited already
};

}  // namespace strait
