#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/flags.hpp"
#include "executor/copy_engine/lane.hpp"
#include "executor/copy_engine/options.hpp"
#include "executor/copy_engine/rounds.hpp"
#include "executor/copy_engine/stream_driver.hpp"
#include "executor/copy_engine/wait.hpp"

namespace strait::copy_engine {

/// Carries large collectives that do not reduce, for GPU ranks that reach one another only through host memory; one
/// object per rank. Copy engines copy chunks to slots in memory that all ranks of the host share, and from there. No SM
/// is used. A rank uploads its data once, however many ranks read it.
///
/// Calls are enqueued on the user's stream and return. Uploads and downloads run concurrently on two streams of this
/// object, after the earlier work of the user's stream and before its later work. All ranks make the same calls in the
/// same order. Streams must not be under capture. One thread at a time calls enqueue(); it may do so for several ranks,
/// one call after the other.
class StagedCopies {
 public:
  /// The largest number of rounds of a call. With more, a thread that enqueues for several ranks could block on a full
  /// driver queue (about a thousand commands) before it has given the other ranks their part.
  static constexpr std::uint64_t most_rounds = 80;

  struct Setup {
    std::unique_ptr<StreamDriver> driver;
    std::uint32_t rank = 0;   ///< among the ranks of this host
    std::uint32_t ranks = 2;  ///< at least 2
    /// Memory that all ranks of the host share, zeroed before the first of them opens it, and kept by the caller as
    /// long as this object lives: its address (page-aligned) in this process, and for its device.
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    std::size_t size_bytes = 0;  ///< limits chunks and slots; the same on all ranks
    StagedOptions options;
    /// Returns whether the communicator has failed. Called from any thread, as long as this object lives.
    std::function<bool()> has_failed;
  };
  /// Fails with Code::mismatch if another rank has opened the memory with other sizes or options.
  static Result<std::unique_ptr<StagedCopies>> open(Setup setup);
  /// Waits until this rank's streams are idle, which after a failure of the communicator is soon.
  ~StagedCopies();
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  /// Returns whether this is a non-empty collective of equal counts that does not reduce, with at most `most_rounds`
  /// rounds, of any type. The same on all ranks. Other calls must be carried some other way.
  bool supports(const CopyCall& call) const;

  /// Enqueues a supported call; buffers are as in the API. After an error of the driver this object can no longer be
  /// used, and the outputs of all calls that were running are undefined.
  Status enqueue(const CopyCall& call, StreamDriver::Stream stream);

  /// Ends the waits of this rank's streams, including those enqueued before. To be called repeatedly after a failure,
  /// from any thread, because a peer's stream that still runs may write a lower value in between.
  void release_waits() { flags_.release_waits(); }

  /// Returns for how long the call that this rank's streams have reached has not progressed, and which rank is furthest
  /// behind; nothing if there is no such call. From one thread.
  std::optional<Wait> wait();

  const StagedWindows& windows() const { return flags_.windows(); }

  /// Sets the counters as if `rounds` rounds (a multiple of the number of slots) had been done. Before the first call,
  /// the same on all ranks. For tests of counters that wrap.
  void start_from(std::uint64_t rounds);

 private:
  struct Operation {
    Rounds rounds;
    std::uint64_t first_round = 0;
  };
  /// A lane with the copies that follow its memory operations.
  struct CopyLane : Lane {
    std::vector<RowCopy> copies;
  };
  StagedCopies(Setup setup, const StagedWindows& windows);
  Status prepare();
  Rounds rounds_of(const CopyCall& call) const { return {call, windows(), setup_.options, setup_.rank}; }
  Status enqueue_rounds(const Operation& operation);
  Status upload(const Operation& operation, std::uint64_t round);
  Status download(const Operation& operation, std::uint64_t round);
  void add_credit_waits(std::uint64_t round);
  Status fork(StreamDriver::Stream from);
  void add(CopyLane& lane, MemoryOperation::Kind kind, std::size_t offset, std::uint64_t value);
  Status flush(CopyLane& lane);

  Setup setup_;
  Flags flags_;
  CopyLane up_, down_;
  StreamDriver::Event begin_ = nullptr;
  Standstill standstill_;
};

}  // namespace strait::copy_engine
