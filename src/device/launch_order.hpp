#pragma once

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
/// part of two GPUs, one most of the first and the other most of the second, both would wait for ever. So if a kernel
/// does not fit on the GPU beside those that may run at the same time, it starts only when all blocks of those have
/// started that the host has launched before.
///
/// Then the earliest call can always go on, on two conditions. All ranks make their calls in the same order, those of
/// different communicators, too (as NCCL asks for, and does with NCCL_LAUNCH_ORDER_IMPLICIT). And no call waits in its
/// stream for what another stream does behind a call that was launched later (by a polling kernel or cuStreamWaitValue;
/// events cannot be awaited before they are recorded): the later one would wait for the earlier one's start. CUDA does
/// not promise the order among streams of different priorities. Launches in graphs are not ordered, nor what a
/// communicator launched while it was alone on the GPU.
///
/// For any number of communicators it is enough that each kernel counts what may run beside it. Say that the earliest
/// call waits for room, and take the kernels that hold it: earlier ones end by themselves, and of the later ones those
/// that awaited it have not started. The last of the others was launched without waiting, and so had counted all that
/// run now, and the earliest call's: these fit together. (The two lines of one communicator do anyway:
/// DeviceArenas::most_message_blocks().)
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
  /// blocks have started; null: nobody needs it. `blocks`: the most multiprocessors that launches like this one, one
  /// after another on a line, occupy at a time. From any thread.
  template <class Launch>
  Status launch(Line line, std::uint32_t blocks, void* stream, Launch&& launch) {
    std::unique_lock lock(gpu_->mutex);
    Starts& own = starts_[static_cast<std::size_t>(line)];
    own.add(blocks);
    if (gpu_->members.size() < 2) {
      lock.unlock();
      return launch(StreamDriver::Event{});
    }
    STRAIT_TRY(await_others(own, stream));
    STRAIT_TRY(launch(own.last));  // under the lock, as the others must see an order
    own.recorded = own.launches;
    return {};
  }

 private:
  struct Gpu {
    std::mutex mutex;
    std::vector<LaunchOrder*> members;
  };
  /// The launches of a line, numbered from 1 on. When one starts, the one before its predecessor has ended: kernels let
  /// the next one begin only when their predecessor has ended (after_predecessor).
  struct Starts {
    struct Launch {
      std::uint64_t number;
      std::uint32_t blocks;
    };
    StreamDriver::Event last = nullptr;  ///< recorded by the launch `recorded`
    std::uint64_t launches = 0;          ///< so far
    std::uint64_t recorded = 0;          ///< 0: none
    std::vector<Launch> largest;         ///< those that are larger than all later ones, in order
    /// By the number of another communicator: the last launch of each of its lines that is awaited already; 0: none.
    std::unordered_map<std::uint64_t, std::array<std::uint64_t, 2>> seen;

    void add(std::uint32_t blocks);
    /// Returns the most blocks of a launch that may not have ended when the launch `number` starts; 0: of all.
    std::uint32_t blocks_from(std::uint64_t number) const;
  };
  LaunchOrder(std::shared_ptr<Gpu> gpu, std::uint32_t sms, std::unique_ptr<StreamDriver> driver);
  static std::shared_ptr<Gpu> gpu_of(int device);
  std::uint64_t blocks_beside(const Starts& own) const;
  Status await_others(Starts& own, void* stream);

  const std::shared_ptr<Gpu> gpu_;
  const std::uint32_t sms_;
  const std::unique_ptr<StreamDriver> driver_;
  const std::uint64_t number_;    ///< differs from that of every other object
  std::array<Starts, 2> starts_;  ///< by line; under gpu_->mutex
};

}  // namespace strait
