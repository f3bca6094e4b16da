#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
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
/// NCCL_LAUNCH_ORDER_IMPLICIT). CUDA does not promise that order among streams of different priorities. Launches in
/// graphs are not ordered, nor what a communicator launched while it was alone on the GPU.
class LaunchOrder {
 public:
  using StreamDriver = copy_engine::StreamDriver;
  /// A communicator's launches on its main line follow one another, and so do those on its side line: the launches that
  /// run beside these, on another stream (IslandMessages).
  enum class Line : std::uint8_t { main, side };

  /// Joins the communicators of `device`, a GPU with `sms` multiprocessors.
  static Result<std::unique_ptr<LaunchOrder>> join(int device, std::uint32_t sms, std::unique_ptr<StreamDriver> driver);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// Calls `launch(event)`, which launches a kernel on `stream`. The kernel must record the event once all of its
  /// blocks have started; null: nobody needs it. `blocks`: the most multiprocessors that launches like this one occupy
  /// at a time. From any thread.
  template <class Launch>
  Status launch(Line line, std::uint32_t blocks, void* stream, Launch&& launch) {
    std::unique_lock lock(gpu_->mutex);
    Starts& own = starts_[static_cast<std::size_t>(line)];
    own.most_blocks = std::max(own.most_blocks, blocks);
    if (gpu_->members.size() < 2) {
      lock.unlock();
      return launch(StreamDriver::Event{});
    }
    STRAIT_TRY(await_others(own, stream));
    ++own.launches;
    return launch(own.last);  // under the lock, as the others must see an order
  }

 private:
  struct Gpu {
    std::mutex mutex;
    std::vector<LaunchOrder*> members;
  };
  /// The launches of a line.
  struct Starts {
    StreamDriver::Event last = nullptr;  ///< recorded by the last one
    std::uint32_t most_blocks = 0;       ///< of all so far
    std::uint64_t launches = 0;          ///< those that recorded `last`
    /// By the number of another communicator: how many launches of each of its lines are awaited already.
    std::unordered_map<std::uint64_t, std::array<std::uint64_t, 2>> seen;
  };
  LaunchOrder(std::shared_ptr<Gpu> gpu, std::uint32_t sms, std::unique_ptr<StreamDriver> driver);
  static std::shared_ptr<Gpu> gpu_of(int device);
  Status await_others(Starts& own, void* stream);

  const std::shared_ptr<Gpu> gpu_;
  const std::uint32_t sms_;
  const std::unique_ptr<StreamDriver> driver_;
  const std::uint64_t number_;    ///< differs from that of every other object
  std::array<Starts, 2> starts_;  ///< by line; under gpu_->mutex
};

}  // namespace strait
