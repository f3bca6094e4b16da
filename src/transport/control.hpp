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

/// The words that all ranks of a communicator on one host see: the abort flag, the first error, and what each rank
/// called last. Plain data in shared memory; zero is the valid initial state. calls/watch.cpp reads and writes
/// it.
namespace strait {

inline constexpr std::size_t cache_line_bytes = 64;
/// History a rank keeps: ranks a few calls apart can compare, and the flight recorder shows it.
inline constexpr std::size_t posted_calls = 64;

/// A call as its rank posted it. `sequence` is written last: a reader that sees it sees the rest (but `finished_ticks`,
/// which comes later).
struct alignas(cache_line_bytes) PostedCall {
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> what{0};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> input{0};  ///< address or heap offset, for peers that can use it
  std::atomic<std::uint64_t> output{0};
  std::atomic<std::uint64_t> posted_ticks{0};    ///< of a peer on another host: when it was heard here
  std::atomic<std::uint64_t> finished_ticks{0};  ///< 0: not finished, or not known to this host
  std::atomic<std::uint64_t> stream{0};          ///< GPU ranks
};
static_assert(sizeof(PostedCall) == cache_line_bytes);

/// What a rank has raised. Whoever of its threads moves `state` from 0 to 1 writes it (write_error()).
struct alignas(cache_line_bytes) ErrorRecord {
  std::atomic<std::uint32_t> state{0};
  std::uint32_t code = 0;
  char message[1016] = {};
};

struct alignas(cache_line_bytes) RankControl {
  std::atomic<std::uint32_t> left{0};        ///< this rank destroyed its communicator
  std::atomic<std::uint32_t> ended{0};       ///< GPU ranks: its process ends, when the rank had nothing left to do
  std::atomic<std::uint32_t> awaited{0};     ///< 1 + the rank that its call in progress has waited for a while; 0: none
  std::atomic<std::uint32_t> is_in_step{0};  ///< it may read and write buffers of other ranks of its process
  std::atomic<std::uint32_t> asked{0};       ///< GPU ranks: how often it has asked all for what their GPUs have started
  /// The number of its operation (Watch::begin_step()) that has failed here, so that its buffers are no peer's; 0:
  /// none.
  std::atomic<std::uint64_t> abandoned{0};
  std::array<PostedCall, posted_calls> calls;
  std::array<PostedCall, posted_calls> messages;  ///< sends and receives, by a number of their own
  /// GPU ranks (device/started_calls.hpp): collectives that the GPU has started, in graphs too, by its own count
  /// of them, as it last said. `posted_ticks`: when that was noticed; `finished_ticks`: when it was noticed that a
  /// later one has started; `input`: the mark; `output`: 1: it is several launches.
  std::array<PostedCall, posted_calls> started;
  PostedCall started_messages;  ///< the last group of them, with the number of the collective that comes next
  ErrorRecord raised;
};

/// A call as its rank posts it and as others read it.
struct CallRecord {
  CallSignature signature;
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t stream = 0;
  std::uint64_t posted_ticks = 0;
  std::uint64_t finished_ticks = 0;
};
/// By the one thread that writes this rank's calls. Notes the time by itself.
inline void write_call(PostedCall& call, std::uint64_t sequence, const CallRecord& record) {
  // A reader that finds the old or the new sequence on both sides of its reads has read one whole call.
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
/// Nothing where another call is there.
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
/// Nothing where it has not been posted, or was overwritten by later ones.
inline std::optional<CallRecord> read_call(const RankControl& rank, std::uint64_t sequence) {
  return read_call(rank.calls[sequence % posted_calls], sequence);
}

struct Control {
  /// Nonzero: every wait ends. 1 + the rank whose `raised`, which is written, is the first error of the communicator.
  alignas(cache_line_bytes) std::atomic<std::uint32_t> abort{0};
};

/// What whoever moved the state of `own`, of `rank`, does next. Each rank has a place of its own, of which the first
/// that is written counts: a rank that stands still or dies in the midst of it keeps nobody waiting, and writes over
/// nothing that others read.
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
