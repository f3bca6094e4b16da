#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::copy_engine {

/// A stream, and a batch of memory operations that it is given with the next flush().
struct Lane {
  StreamDriver::Stream stream = nullptr;
  StreamDriver::Event done = nullptr;
  std::vector<MemoryOperation> operations{};
  std::vector<StreamDriver::Stream> others{};  ///< earlier streams of this lane, which other captures may hold

  /// Creates what does not exist yet. May be called repeatedly.
  Status open(StreamDriver& driver) {
    if (stream == nullptr) {
      STRAIT_ASSIGN(stream, driver.create_stream());
    }
    if (done == nullptr) {
      STRAIT_ASSIGN(done, driver.create_event());
    }
    return {};
  }
  void close(StreamDriver& driver) {
    if (done != nullptr) driver.destroy_event(done);
    if (stream != nullptr) driver.destroy_stream(stream);
    for (const StreamDriver::Stream other : others) driver.destroy_stream(other);
    others.clear();
    stream = done = nullptr;
  }
  bool is_idle(StreamDriver& driver) const {
    return (stream == nullptr || driver.is_idle(stream)) &&
           std::all_of(others.begin(), others.end(), [&](StreamDriver::Stream other) { return driver.is_idle(other); });
  }
  /// Makes what comes next on this lane wait for `begun`, an event of a stream in that capture (0: no capture). A
  /// stream that has waited for an event of a capture belongs to the capture until its end; meanwhile, calls outside of
  /// this capture use another stream of the lane.
  Status fork(StreamDriver& driver, StreamDriver::Event begun, std::uint64_t capture_id) {
    const std::uint64_t now = capture_of(driver, stream);
    if (now != capture_id) STRAIT_TRY(change_stream(driver, now == 0, capture_id));
    return driver.wait(stream, begun);
  }
  void add(MemoryOperation::Kind kind, void* word, std::uint32_t value = 0) {
    operations.push_back({.kind = kind, .word = word, .value = value});
  }
  Status flush(StreamDriver& driver) {
    Status given;
    if (!operations.empty()) given = driver.operate(operations, stream);
    operations.clear();
    return given;
  }
  /// Flushes, and makes what comes next on `to` wait for everything that this lane was given.
  Status join(StreamDriver& driver, StreamDriver::Stream to) {
    STRAIT_TRY(flush(driver));
    STRAIT_TRY(driver.record(done, stream));
    return driver.wait(to, done);
  }

 private:
  /// Returns the capture that a stream belongs to. If this cannot be determined, as after an error has invalidated the
  /// capture, returns a number that no capture has: the stream is of no use until the user ends that capture, too.
  static std::uint64_t capture_of(StreamDriver& driver, StreamDriver::Stream stream) {
    const Result<StreamState> now = driver.look_at(stream);
    return now ? now->capture_id : ~std::uint64_t{0};
  }
  /// Switches to a stream that belongs to the capture, if there is one, otherwise to a free one (such as a new one).
  Status change_stream(StreamDriver& driver, bool is_free, std::uint64_t capture_id) {
    StreamDriver::Stream* free = is_free ? &stream : nullptr;
    for (StreamDriver::Stream& other : others) {
      const std::uint64_t now = capture_of(driver, other);
      if (now == capture_id) {
        std::swap(stream, other);
        return {};
      }
      if (now == 0 && free == nullptr) free = &other;
    }
    if (free == nullptr) {
      STRAIT_ASSIGN(const StreamDriver::Stream fresh, driver.create_stream());
      free = &others.emplace_back(fresh);
    }
    std::swap(stream, *free);
    return {};
  }
};

}  // namespace strait::copy_engine
