#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "executor/copy_engine/options.hpp"
#include "executor/copy_engine/windows.hpp"

namespace strait::copy_engine {

/// One rank's view of the words of the shared memory, and of how far its own streams have been told to go.
class Flags {
 public:
  /// `host`: windows.size_bytes() of shared memory, zeroed before the first rank came.
  Flags(const StagedWindows& windows, std::uint32_t rank, std::byte* host)
      : windows_(windows), rank_(rank), host_(host) {}

  const StagedWindows& windows() const { return windows_; }

  /// Writes down, or compares with what another rank has written down, all that ranks must agree on.
  Status agree(const StagedOptions& options);

  /// Brings every word that a stream of this rank may wait for to what it waits for, now and for all that it has been
  /// told until now. A stream of another rank that still runs may write a lower value afterwards: to be repeated until
  /// this rank's streams are idle. What they carry is worthless from here on.
  void release_waits();

  /// Rounds that this rank's operations have taken up to now.
  std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  void add_rounds(std::uint64_t rounds) { rounds_.fetch_add(rounds, std::memory_order_relaxed); }

  /// As if this rank had done that many rounds.
  void start_from(std::uint64_t rounds);

  /// Whether this rank's streams have come to an operation, and not to its end.
  bool is_running() const;
  /// Another number than before when streams of any rank have got on. No operation goes on for ever without this rank:
  /// the others need its uploads, or their slots back.
  std::uint32_t progress() const;
  /// Of the others the rank that is furthest behind.
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
