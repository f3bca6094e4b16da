#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"

namespace strait::copy_engine {

/// An operation of a stream on a 32-bit word in memory: a write, or a wait for a value.
struct MemoryOperation {
  enum class Kind : std::uint8_t {
    write,          ///< after all earlier work of the stream is visible
    clear_pair,     ///< the same for two adjacent words, which become 0; the first at a multiple of 8 bytes
    wait_at_least,  ///< until static_cast<std::int32_t>(word - value) >= 0, so that counters may wrap
    wait_equal,     ///< until word == value
  };
  Kind kind = Kind::write;
  void* word = nullptr;  ///< address for the device
  std::uint32_t value = 0;
};

/// A copy of `rows` rows of `row_bytes`; each row begins `pitch` bytes after the previous one.
struct RowCopy {
  void* to = nullptr;
  std::size_t to_pitch_bytes = 0;
  const void* from = nullptr;
  std::size_t from_pitch_bytes = 0;
  std::size_t row_bytes = 0;
  std::size_t rows = 1;
};

/// What can be queried about a stream of the user.
struct StreamState {
  /// A unique number; during a capture the stream's address, because nothing else may be queried then.
  std::uint64_t id = 0;
  std::uint64_t capture_id = 0;  ///< 0: the stream is not being captured
};

/// A node of a graph that is being captured. It depends on all the work behind which record_external() has placed it.
struct GraphEnd {
  void* node = nullptr;
  std::vector<void*> behind;  ///< the nodes on which it depends since the last call
};

/// The operations on a device's streams: a thin layer over CUDA calls, or a stand-in that needs no GPU. Streams and
/// events are CUDA's own handles. No call waits for the device, except that a driver whose queue is full blocks until
/// there is room. Not thread-safe, except for is_idle() and has_passed().
class StreamDriver {
 public:
  using Stream = void*;
  using Event = void*;
  virtual ~StreamDriver() = default;

  /// Creates a stream that does not synchronise with the default stream.
  virtual Result<Stream> create_stream() = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual Result<Event> create_event() = 0;
  virtual void destroy_event(Event event) = 0;

  virtual Result<StreamState> look_at(Stream stream) = 0;
  virtual Status record(Event event, Stream stream) = 0;
  /// Makes `stream` wait for what the last record() of `event` has marked.
  virtual Status wait(Stream stream, Event event) = 0;
  /// For a stream that is being captured: makes each launch of the graph wait, at this point, for what the last
  /// record() of `event` before that launch has marked.
  virtual Status wait_external(Stream stream, Event event) = 0;
  /// For a stream that is being captured: makes each launch of the graph record `event` once all work is done that
  /// preceded any call of this function with the same `end`. Later work on the stream does not wait for this.
  virtual Status record_external(Event event, Stream stream, GraphEnd& end) = 0;
  /// Copies between any host and device memory with a copy engine. Addresses are those of the device.
  virtual Status copy(const RowCopy& copy, Stream stream) = 0;
  /// Enqueues the operations in the given order, in as few calls as possible.
  virtual Status operate(std::span<const MemoryOperation> operations, Stream stream) = 0;
  /// Returns whether the stream has finished all its work; also true if the device has failed, because then no work is
  /// done any more.
  virtual bool is_idle(Stream stream) = 0;
  /// Returns whether what the last record() marked has finished (true before the first one), or nothing if the device
  /// has failed.
  virtual std::optional<bool> has_passed(Event event) = 0;
};

}  // namespace strait::copy_engine
