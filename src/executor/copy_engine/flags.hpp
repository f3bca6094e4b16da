#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "executor/copy_engine/options.hpp"
#include "executor/copy_engine/windows.hpp"

namespace strait::copy_engine {

/// One rank's view of the words in the shared memory, and of how many rounds its own streams have been given.
class Flags {
 public:
  /// `host`: windows.size_bytes() of shared memory, which must be zeroed before the first rank uses it.
  Flags(const StagedWindows& windows, std::uint32_t rank, std::byte* host)
      : windows_(windows), rank_(rank), host_(host) {}

  const StagedWindows& windows() const { return windows_; }

  /// Stores the parameters that must be equal on all ranks, or compares them with those that another rank has stored.
  Status agree(const StagedOptions& options);

  /// Raises every word that a stream of this rank may wait for to the value it waits for, including all waits enqueued
  /// so far. A stream of another rank that still runs may write a lower value afterwards, so this must be repeated
  /// until this rank's streams are idle. The data that they carry is worthless from then on.
  void release_waits();

  /// Returns the number of rounds of this rank's operations so far.
  std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  void add_rounds(std::uint64_t rounds) { rounds_.fetch_add(rounds, std::memory_order_relaxed); }

  /// Sets the counters as if this rank had done that many rounds.
  void start_from(std::uint64_t rounds);

  /// Returns whether this rank's streams have reached an operation, but not its end.
  bool is_running() const;
  /// Returns a number that changes whenever the streams of any rank progress. If this rank stalls, so do the others
  /// soon, because they need its uploads or the slots that it frees.
  std::uint32_t progress() const;
  /// Returns that of the other ranks which is furthest behind.
  std::uint32_t last_rank() const;

 private:
  std::atomic_ref<std::uint32_t> word(std::size_t offset) const {
    return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(host_ + offset));
  }
  std::uint32_t load(std::size_t offset) const { return word(offset).load(std::memory_order_acquire); }
  void raise(std::size_t offset, std::uint32_t value);

  StagedWindows windows_;
  std::uint32_t rank_;
  std::byte* host_;
  std::atomic<std::uint64_t> rounds_ = 0;
};

}  // namespace strait::copy_engine
