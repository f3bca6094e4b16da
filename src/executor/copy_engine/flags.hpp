#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/options.hpp"
#include "executor/copy_engine/windows.hpp"

namespace strait::staged {

/// One rank's view of the words of the shared memory, and of how far its own streams have been told to go.
class Flags {
 public:
  /// `host`: windows.size_bytes() of shared memory, zeroed before the first rank came.
  Flags(const StagedWindows& windows, std::uint32_t reducers, std::byte* host)
      : windows_(windows), reducers_(reducers), host_(host), reductions_(windows.depth) {}

  const StagedWindows& windows() const { return windows_; }
  std::byte* host() const { return host_; }

  std::uint32_t load(std::size_t offset) const { return word(offset).load(std::memory_order_acquire); }
  bool is_at_least(std::size_t offset, std::uint64_t value) const {
    return static_cast<std::int32_t>(load(offset) - static_cast<std::uint32_t>(value)) >= 0;
  }
  void increment(std::size_t offset) { word(offset).fetch_add(1, std::memory_order_acq_rel); }

  /// Writes down, or compares with what another rank has written down, all that ranks must agree on.
  Status agree(const StagedOptions& options);

  /// Some rank has given up.
  bool is_aborted() const { return load(windows_.aborted()) != 0; }
  void set_aborted() { word(windows_.aborted()).store(1, std::memory_order_release); }
  /// Brings every word that a stream of this rank may wait for to what it waits for, now and for all that it has been
  /// told until now. A stream of another rank that still runs may write a lower value afterwards: to be repeated until
  /// this rank's streams are idle. What they carry is worthless from here on.
  void release_waits();

  /// Rounds and, by slot, reductions that this rank's operations have taken up to now.
  std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  void add_rounds(std::uint64_t rounds) { rounds_.fetch_add(rounds, std::memory_order_relaxed); }
  std::uint64_t reductions(std::uint32_t slot) const { return reductions_[slot].load(std::memory_order_relaxed); }
  void add_reduction(std::uint32_t slot) { reductions_[slot].fetch_add(1, std::memory_order_relaxed); }
  /// What reduced(slot) says once that many reductions of the slot are complete.
  std::uint64_t reduced_target(std::uint64_t reductions) const { return reductions * windows_.ranks * reducers_; }

  /// As if this rank had done that many rounds, all of them reductions.
  void start_from(std::uint32_t own_rank, std::uint64_t rounds);

  /// Of the others the rank that is furthest behind.
  std::uint32_t last_rank(std::uint32_t own_rank) const;

 private:
  std::atomic_ref<std::uint32_t> word(std::size_t offset) const {
    return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(host_ + offset));
  }
  void raise(std::size_t offset, std::uint32_t value);

  StagedWindows windows_;
  std::uint32_t reducers_;
  std::byte* host_;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::vector<std::atomic<std::uint64_t>> reductions_;
};

}  // namespace strait::staged
