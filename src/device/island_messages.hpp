#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "calls/call.hpp"
#include "device/call_order.hpp"
#include "device/side_streams.hpp"
#include "launches/device_calls.hpp"
#include "launches/islands.hpp"

namespace strait {

/// A group's messages.
struct SplitMessages {
  std::vector<Call> inside;  ///< within an island, with peers counted by their places in it
  std::vector<Call> others;
};
/// Of the rank `self`, which is in `island`. Both ends of a message find alike. What a rank sends itself goes with what
/// else there is, and inside if that is both or nothing.
SplitMessages split_messages(std::span<const Call> messages, const Island& island, std::uint32_t self);

/// Sends and receives of GPU ranks that form islands: those within an island through the memory of its GPUs, the others
/// through host memory.
///
/// A group that has both makes two sequences of launches, on the user's stream and on one beside it: neither waits for
/// the other, because peers may make one by one, in any order that ends, the calls that this rank makes as a group. For
/// that both must find room on the GPU at once: the sequences' launches are bounded
/// (DeviceArenas::most_message_blocks). Streams may share a hardware queue, in which a launch that waits for the one
/// before it in its sequence holds up what comes after it; so launches of both are enqueued in the order of turns
/// (DeviceCalls::Turn), in which those of a single ring would wait for one another.
class IslandMessages {
 public:
  struct Setup {
    Island island;  ///< this rank's
    std::uint32_t rank = 0;
    DeviceCalls inside, others;
    std::unique_ptr<SideStreams> side;
  };
  /// Gives a launch to a stream.
  using Launch = std::function<Status(DeviceLaunch& launch, void* stream)>;
  explicit IslandMessages(Setup setup) : setup_(std::move(setup)) {}

  /// Of one group, on the first one's stream.
  Result<CallOrder::Tail> enqueue(std::span<const Call> messages, const Launch& launch);

 private:
  Setup setup_;
};

}  // namespace strait
