#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "calls/call.hpp"
#include "calls/watch.hpp"
#include "communicator/collective_sequence.hpp"
#include "communicator/flight_recorder.hpp"
#include "device/device_rank.hpp"

namespace strait {

/// The operations of a GPU rank: posts and records them, enqueues them on its DeviceRank, and makes what fails there an
/// error of the communicator. For the calling thread an operation is done once it is enqueued: from then on it belongs
/// to its stream.
class DeviceOperations {
 public:
  /// The parts of the communicator that its operations need. They must outlive this object.
  struct Parts {
    DeviceRank& device;
    Watch& watch;
    FlightRecorder& recorder;
    CollectiveSequence& collectives;
  };
  explicit DeviceOperations(const Parts& parts)
      : device_(parts.device), watch_(parts.watch), recorder_(parts.recorder), collectives_(parts.collectives) {}

  /// See DeviceRank::prepare_call().
  Status prepare(const Call& call);
  /// Begins one collective, or several that share a launch.
  Status begin(std::span<const Call> calls);
  /// Begins the sends and receives of one group.
  Status begin_messages(std::span<const Call> messages);
  /// Makes later work on the stream of `then` wait for the work that is on that of `first` now.
  Status order_streams(const Call& first, const Call& then);

 private:
  /// Returns the ID of the capture of the call's stream, 0 if it is not captured. If the stream refuses calls
  /// (Code::invalid_usage), nothing has changed; any other error is raised for all ranks.
  Result<std::uint64_t> capture_of(const Call& call);
  /// Checks that the streams of a group's messages are all in one capture, or in none.
  Status check_streams(std::span<const Call> messages);
  /// Returns the result of a launch; if it failed, describes the call in the error and raises it. `number`: the one
  /// that the collective has if it is counted (captured ones are not); 0: messages.
  Status launched(const Call& call, std::uint64_t number, Status result);
  const RankName& own_name() const { return watch_.name_of(watch_.rank()); }

  DeviceRank& device_;
  Watch& watch_;
  FlightRecorder& recorder_;
  CollectiveSequence& collectives_;
};

}  // namespace strait
