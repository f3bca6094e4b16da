#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ticks.hpp"
#include "transport/link.hpp"

/// The control words that all ranks of a communicator on one host see: the abort flag, the first error, and the calls
/// that each rank has posted. Plain data in shared memory, for which all zeros is the valid initial state.
/// calls/watch.cpp reads and writes them.
namespace strait {

inline constexpr std::size_t cache_line_bytes = 64;
/// Number of posted calls that a rank keeps, so that ranks a few calls apart can compare theirs, and for the flight
/// recorder.
inline constexpr std::size_t posted_calls = 64;

/// A call as its rank posted it. `sequence` is written last, so a reader that sees the new `sequence` also sees the
/// other words (except `finished_ticks`, which is written when the call ends).
struct alignas(cache_line_bytes) PostedCall {
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> what{0};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> input{0};  ///< address or heap offset, for peers that can address it
  std::atomic<std::uint64_t> output{0};
  /// For a peer on another host: when the news of the call arrived on this host.
  std::atomic<std::uint64_t> posted_ticks{0};
  std::atomic<std::uint64_t> finished_ticks{0};  ///< 0: not finished, or this host does not know
  std::atomic<std::uint64_t> stream{0};          ///< stream of the call; GPU ranks only
};
static_assert(sizeof(PostedCall) == cache_line_bytes);

/// The error that a rank has raised. The thread of that rank that changes `state` from 0 to 1 writes the record
/// (write_error()).
struct alignas(cache_line_bytes) ErrorRecord {
  std::atomic<std::uint32_t> state{0};
  std::uint32_t code = 0;
  char message[1016] = {};
};

struct alignas(cache_line_bytes) RankControl {
  std::atomic<std::uint32_t> left{0};  ///< nonzero: this rank has destroyed its communicator
  /// GPU ranks: nonzero: the process is exiting in good order, after the rank finished its work.
  std::atomic<std::uint32_t> exiting{0};
  std::atomic<std::uint32_t> awaited{0};  ///< 1 + the rank that the call in progress has been waiting for; 0: none
  /// Nonzero: this rank may be reading and writing buffers of other ranks of its process.
  std::atomic<std::uint32_t> is_in_step{0};
  /// GPU ranks: how often this rank has asked all ranks to publish what their GPUs have started.
  std::atomic<std::uint32_t> mark_requests{0};
  /// The number of the operation (Watch::begin_step()) that has failed on this rank, so that peers must no longer use
  /// its buffers; 0: none.
  std::atomic<std::uint64_t> abandoned{0};
  std::array<PostedCall, posted_calls> calls;
  std::array<PostedCall, posted_calls> messages;  ///< sends and receives, which have their own sequence numbers
  /// GPU ranks (device/started_calls.hpp): the collectives that the GPU has started, by the GPU's own count and
  /// including those of graphs, as of the last time that it was read. Here `posted_ticks` is the time at which the
  /// start was noticed, `finished_ticks` the time at which the start of a later collective was noticed, `input` the
  /// GPU's mark, and `output` is 1 if the call consists of several launches.
  std::array<PostedCall, posted_calls> started;
  PostedCall started_messages;  ///< the last group of sends and receives, with the number of the next collective
  ErrorRecord raised;
};

/// A call in the form in which its rank posts it and other ranks read it.
struct CallRecord {
  CallSignature signature;
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t stream = 0;
  std::uint64_t posted_ticks = 0;
  std::uint64_t finished_ticks = 0;
};
/// Posts a call and records the current time. Must be called only by the thread that writes this rank's calls.
inline void write_call(PostedCall& call, std::uint64_t sequence, const CallRecord& record) {
  // A seqlock: a reader that finds the same sequence before and after its reads has read one whole call.
  call.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  call.what.store(record.signature.what, std::memory_order_relaxed);
  call.count.store(record.signature.count, std::memory_order_relaxed);
  call.input.store(record.input, std::memory_order_relaxed);
  call.output.store(record.output, std::memory_order_relaxed);
  call.stream.store(record.stream, std::memory_order_relaxed);
  call.posted_ticks.store(ticks_now(), std::memory_order_relaxed);
  call.finished_ticks.store(0, std::memory_order_relaxed);
  call.sequence.store(sequence, std::memory_order_release);
}
inline void write_call(RankControl& rank, std::uint64_t sequence, const CallRecord& record) {
  write_call(rank.calls[sequence % posted_calls], sequence, record);
}
/// Returns the call with that sequence number, or nothing if another call is stored or is being written.
inline std::optional<CallRecord> read_call(const PostedCall& call, std::uint64_t sequence) {
  if (call.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  const CallRecord record{{call.what.load(std::memory_order_relaxed), call.count.load(std::memory_order_relaxed)},
                          call.input.load(std::memory_order_relaxed),
                          call.output.load(std::memory_order_relaxed),
                          call.stream.load(std::memory_order_relaxed),
                          call.posted_ticks.load(std::memory_order_relaxed),
                          call.finished_ticks.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (call.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return record;
}
/// Returns nothing if the call has not been posted yet, or has been overwritten by later ones.
inline std::optional<CallRecord> read_call(const RankControl& rank, std::uint64_t sequence) {
  return read_call(rank.calls[sequence % posted_calls], sequence);
}

/// Returns whether the rank is known to have posted the call with that sequence number, or a later one.
inline bool has_posted(const RankControl& rank, std::uint64_t sequence) {
  return rank.calls[sequence % posted_calls].sequence.load(std::memory_order_acquire) >= sequence;
}

/// Returns whether the rank is known to have finished the call with that sequence number, or to have posted a later one
/// in its place.
inline bool has_finished(const RankControl& rank, std::uint64_t sequence) {
  const PostedCall& call = rank.calls[sequence % posted_calls];
  const std::uint64_t posted = call.sequence.load(std::memory_order_acquire);
  return posted > sequence || (posted == sequence && call.finished_ticks.load(std::memory_order_relaxed) != 0);
}

struct Control {
  /// Nonzero ends every wait. The value is 1 + the rank whose `raised` record, already written, is the first error of
  /// the communicator.
  alignas(cache_line_bytes) std::atomic<std::uint32_t> abort{0};
};

/// Writes the error of `rank` and raises the abort flag if it is not raised yet. Called by the thread that has changed
/// the state of `own`, the control words of `rank`. Each rank has its own record, and the first one that is complete
/// becomes the communicator's error. So a rank that stalls or dies while it writes keeps no other rank waiting, and
/// never overwrites what others read.
inline void write_error(Control& control, RankControl& own, std::uint32_t rank, std::uint32_t code,
                        std::string_view message) {
  ErrorRecord& record = own.raised;
  record.code = code;
  const std::size_t length = std::min(message.size(), sizeof record.message - 1);
  std::copy_n(message.data(), length, record.message);
  record.message[length] = '\0';
  std::uint32_t none = 0;
  control.abort.compare_exchange_strong(none, rank + 1, std::memory_order_acq_rel);
}

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "atomics in memory shared between processes must not hide locks");

}  // namespace strait
