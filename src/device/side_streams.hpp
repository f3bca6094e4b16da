#pragma once

#include <memory>

#include "base/error.hpp"
#include "executor/copy_engine/lane.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait {

/// Streams of the communicator's own, for work beside what a user's stream is given at the same time. Can be captured.
/// There is one for each capture that is under way (Lane::fork), and one for the rest. One thread at a time.
class SideStreams {
 public:
  using Stream = copy_engine::StreamDriver::Stream;
  static Result<std::unique_ptr<SideStreams>> open(std::unique_ptr<copy_engine::StreamDriver> driver);
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  /// A stream that comes after what is on `stream` now; until the join().
  Result<Stream> fork(Stream stream);
  /// What comes next on `stream` waits for what the last fork() was given.
  Status join(Stream stream) { return lane_.join(*driver_, stream); }

 private:
  explicit SideStreams(std::unique_ptr<copy_engine::StreamDriver> driver) : driver_(std::move(driver)) {}

  std::unique_ptr<copy_engine::StreamDriver> driver_;
  copy_engine::Lane lane_;
  copy_engine::StreamDriver::Event begun_ = nullptr;
};

}  // namespace strait
