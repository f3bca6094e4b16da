#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::copy_engine {

/// A stream of its own, and the memory operations that it is given at once.
struct Lane {
  StreamDriver::Stream stream = nullptr;
  StreamDriver::Event done = nullptr;
  std::vector<MemoryOperation> operations{};
  std::vector<StreamDriver::Stream> others{};  ///< that have been this lane's, too

  /// Once or more.
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
  /// What comes next waits for `begun`, of a stream in the capture of that number (0: none). A stream that has waited
  /// for one in a capture belongs to it until it ends: what comes from elsewhere until then has another one.
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
  /// What comes next on `to` waits for all that this was given.
  Status join(StreamDriver& driver, StreamDriver::Stream to) {
    STRAIT_TRY(flush(driver));
    STRAIT_TRY(driver.record(done, stream));
    return driver.wait(to, done);
  }

 private:
  /// The number of no capture where nothing can be known of it, as of one that an error has ended: until the user ends
  /// it, too, the stream is of no use.
  static std::uint64_t capture_of(StreamDriver& driver, StreamDriver::Stream stream) {
    const Result<StreamState> now = driver.look_at(stream);
    return now ? now->capture_id : ~std::uint64_t{0};
  }
  /// To one of that capture if there is any; else to a free one, if this is none.
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
