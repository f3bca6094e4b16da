#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"

namespace strait::copy_engine {

/// A write of a 32-bit word by a stream, or a wait of a stream for one.
struct MemoryOperation {
  enum class Kind : std::uint8_t {
    write,          ///< after all that the stream did before is visible
    clear_pair,     ///< writes 0 to two words, the first at a multiple of 8 bytes, likewise
    wait_at_least,  ///< until static_cast<std::int32_t>(word - value) >= 0: counters may wrap
    wait_equal,     ///< until word == value
  };
  Kind kind = Kind::write;
  void* word = nullptr;  ///< as the device sees it
  std::uint32_t value = 0;
};

/// `rows` rows of `row_bytes`, each `pitch` bytes after the one before.
struct RowCopy {
  void* to = nullptr;
  std::size_t to_pitch_bytes = 0;
  const void* from = nullptr;
  std::size_t from_pitch_bytes = 0;
  std::size_t row_bytes = 0;
  std::size_t rows = 1;
};

/// What can be known of a stream that is in the user's hand.
struct StreamState {
  std::uint64_t id = 0;          ///< a number of its own; in a capture its address, for there nothing else may be asked
  std::uint64_t capture_id = 0;  ///< 0: it is not being captured
};

/// A node of a graph that is being captured, behind all that it was put behind.
struct GraphEnd {
  void* node = nullptr;
  std::vector<void*> behind;  ///< the nodes that it was put behind last
};

/// What is asked of a device's streams: a thin layer over the CUDA driver's calls, or a stand-in that needs no GPU.
/// Streams and events are those of the driver, passed through as they are. No call waits for the device, except that a
/// driver whose queue is full waits until there is room. Not safe for two threads at once, except for is_idle() and
/// has_passed().
class StreamDriver {
 public:
  using Stream = void*;
  using Event = void*;
  virtual ~StreamDriver() = default;

  /// A stream that does not synchronise with the default one.
  virtual Result<Stream> create_stream() = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual Result<Event> create_event() = 0;
  virtual void destroy_event(Event event) = 0;

  virtual Result<StreamState> look_at(Stream stream) = 0;
  virtual Status record(Event event, Stream stream) = 0;
  /// `stream` goes on when what the last record() of `event` marked is done.
  virtual Status wait(Stream stream, Event event) = 0;
  /// Of a stream that is being captured: each launch of the graph goes on here when what the last record() of `event`
  /// before it marked is done.
  virtual Status wait_outside(Stream stream, Event event) = 0;
  /// Likewise: each launch of the graph marks `event` when all is done that this was called behind, with the same `end`
  /// each time. What comes next on the stream does not wait for that.
  virtual Status record_outside(Event event, Stream stream, GraphEnd& end) = 0;
  /// Copies between any two of host and device memory by a copy engine; the addresses are the device's.
  virtual Status copy(const RowCopy& copy, Stream stream) = 0;
  /// In the order given, in as few calls as possible.
  virtual Status operate(std::span<const MemoryOperation> operations, Stream stream) = 0;
  /// Whether all that the stream was given is done. True if the device has failed: nothing is done any more.
  virtual bool is_idle(Stream stream) = 0;
  /// Whether what the last record() marked is done, and true before the first; nothing if the device has failed.
  virtual std::optional<bool> has_passed(Event event) = 0;
};

}  // namespace strait::copy_engine
