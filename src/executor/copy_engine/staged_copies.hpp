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

/// Large collectives, those that add nothing up, of GPU ranks that reach one another only through host memory, one
/// object a rank. Copy engines carry chunks up to and down from slots in memory that all ranks of the host share. No SM
/// is used. A rank writes what it has once, however many read it.
///
/// Calls are enqueued on the user's stream and return; uploads and downloads run beside one another on two streams of
/// this object, between what the user's stream did before and what it does next. All ranks make the same calls in the
/// same order. Not for streams that are being captured. One thread at a time calls enqueue(), and may do so for several
/// ranks, one call after the other.
class StagedCopies {
 public:
  /// Of a call. A driver whose queue is full, of about a thousand commands, would keep a thread that enqueues for
  /// several ranks from giving the others theirs.
  static constexpr std::uint64_t most_rounds = 80;

  struct Setup {
    std::unique_ptr<StreamDriver> driver;
    std::uint32_t rank = 0;   ///< among those of this host
    std::uint32_t ranks = 2;  ///< at least 2
    /// Memory that all ranks of the host share, zeroed before the first of them opens, and kept by the caller while
    /// this object lives: as this process sees it (at a page's boundary), and as its device does.
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    std::size_t size_bytes = 0;  ///< bounds chunks and slots; the same on all ranks
    StagedOptions options;
    /// Whether the communicator has failed; from any thread, and as long as this object lives.
    std::function<bool()> has_failed;
  };
  /// Code::mismatch where another rank has opened the memory with other sizes or options.
  static Result<std::unique_ptr<StagedCopies>> open(Setup setup);
  /// Waits for this rank's streams; after a failure of the communicator that is soon.
  ~StagedCopies();
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;

  /// Collectives of equal counts that add nothing up, of any type, and of at most `most_rounds`. All ranks find alike.
  /// Others, and empty ones, are for somebody else.
  bool supports(const CopyCall& call) const;

  /// The call must be one that is supported, with buffers as the API wants them. After an error of the driver this
  /// object is of no more use, and the outputs of all that was under way are undefined.
  Status enqueue(const CopyCall& call, StreamDriver::Stream stream);

  /// After a failure, from any thread, again and again: ends what this rank's streams wait for, also for what was
  /// enqueued before. A peer's stream that still runs may write a lower value in between.
  void release_waits() { flags_.release_waits(); }

  /// From one thread: since when nothing has moved of the call that this rank is at, and who is furthest behind.
  std::optional<Wait> wait();

  const StagedWindows& windows() const { return flags_.windows(); }

  /// Before the first call: counts as if `rounds` (a multiple of the slots) had been done before. For tests of counters
  /// that wrap; the same on all ranks.
  void start_from(std::uint64_t rounds);

 private:
  struct Operation {
    Rounds rounds;
    std::uint64_t first_round = 0;
  };
  /// With the copies that come after its memory operations.
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
