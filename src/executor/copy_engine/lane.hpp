#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::staged {

/// A stream of its own, and the memory operations that it is given at once.
struct Lane {
  StreamDriver::Stream stream = nullptr;
  StreamDriver::Event done = nullptr;
  std::vector<MemoryOperation> operations;

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
    stream = done = nullptr;
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
};

}  // namespace strait::staged
