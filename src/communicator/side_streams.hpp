#pragma once

#include <deque>
#include <memory>

#include "base/error.hpp"
#include "executor/copy_engine/lane.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait {

/// Streams of the communicator's own, for work beside what a user's stream is given at the same time. Can be captured.
/// A stream that a capture has taken in is of no use to others until the capture ends: there is one for each that is
/// under way, and one for the rest, made when it is needed first. One thread at a time.
class SideStreams {
 public:
  using Stream = staged::StreamDriver::Stream;
  static Result<std::unique_ptr<SideStreams>> open(std::unique_ptr<staged::StreamDriver> driver);
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  /// A stream that comes after what is on `stream` now; until the join().
  Result<Stream> fork(Stream stream);
  /// What comes next on `stream` waits for what the last fork() was given.
  Status join(Stream stream) { return forked_->join(*driver_, stream); }

 private:
  explicit SideStreams(std::unique_ptr<staged::StreamDriver> driver) : driver_(std::move(driver)) {}
  Result<staged::Lane*> find_free(std::uint64_t capture_id);
  Result<staged::Lane*> add();

  std::unique_ptr<staged::StreamDriver> driver_;
  std::deque<staged::Lane> lanes_;
  staged::Lane* forked_ = nullptr;
  staged::StreamDriver::Event begun_ = nullptr;
};

}  // namespace strait
