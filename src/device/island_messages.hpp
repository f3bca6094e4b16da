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

/// The messages of a group, by the way that they take.
struct SplitMessages {
  std::vector<Call> inside;  ///< within this rank's island; peers are numbered by their places in it
  std::vector<Call> others;  ///< with ranks of other islands
};
/// Splits the messages of rank `self`, which is in `island`. Both ends of a message decide alike. Messages of the rank
/// to itself go with the others that there are; inside, if there are both kinds or none.
SplitMessages split_messages(std::span<const Call> messages, const Island& island, std::uint32_t self);

/// Sends and receives of GPU ranks that form islands: messages within an island go through the memory of its GPUs, the
/// others through host memory.
///
/// A group with both kinds makes two sequences of launches, one on the user's stream and one on a stream beside it.
/// Neither waits for the other, because peers may make one by one, in any order that terminates, the calls that this
/// rank makes as a group. So launches of both must fit on the GPU at once; therefore their blocks are bounded
/// (DeviceArenas::most_message_blocks()). Streams may share a hardware queue, in which a launch that waits for the one
/// before it in its sequence holds up everything behind it. So the launches of both sequences are enqueued in the order
/// of turns (DeviceCalls::Turn), in which launches over a single ring would wait for one another.
class IslandMessages {
 public:
  struct Setup {
    Island island;  ///< the one of this rank
    std::uint32_t rank = 0;
    DeviceCalls inside, others;
    std::unique_ptr<SideStreams> side;
  };
  /// Enqueues a launch on a stream.
  using Launch = std::function<Status(DeviceLaunch& launch, void* stream)>;
  explicit IslandMessages(Setup setup) : setup_(std::move(setup)) {}

  /// Enqueues the messages of one group on the stream of the first.
  Result<CallOrder::Tail> enqueue(std::span<const Call> messages, const Launch& launch);

 private:
  Setup setup_;
};

}  // namespace strait
