#pragma once

#include <memory>

#include "base/error.hpp"
#include "executor/copy_engine/lane.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait {

/// Internal streams of a communicator, for work that runs beside what a user's stream is given at the same time. They
/// can be captured: each capture that is under way has its own stream (Lane::fork()), and work outside of captures has
/// one. One thread at a time.
class SideStreams {
 public:
  using Stream = copy_engine::StreamDriver::Stream;
  static Result<std::unique_ptr<SideStreams>> open(std::unique_ptr<copy_engine::StreamDriver> driver);
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  /// Returns a stream whose work comes after what is on `stream` now. It may be used until join().
  Result<Stream> fork(Stream stream);
  /// Makes later work on `stream` wait for what the stream of the last fork() was given.
  Status join(Stream stream) { return lane_.join(*driver_, stream); }

 private:
  explicit SideStreams(std::unique_ptr<copy_engine::StreamDriver> driver) : driver_(std::move(driver)) {}

  std::unique_ptr<copy_engine::StreamDriver> driver_;
  copy_engine::Lane lane_;
  copy_engine::StreamDriver::Event begun_ = nullptr;
};

}  // namespace strait
