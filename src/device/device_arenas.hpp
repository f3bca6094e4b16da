#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/device_rank.hpp"
#include "device/memory/host_memory.hpp"
#include "device/memory/shared_memory.hpp"
#include "device/staging_account.hpp"
#include "device/staging_budget.hpp"
#include "device/staging_places.hpp"
#include "executor/cpu_reducers/reducer_memory.hpp"
#include "executor/cuda/runtime.hpp"
#include "kernels/layout.hpp"

namespace strait {

/// The memory through which the GPU ranks of a host exchange data. If each GPU can access all others, and a probe has
/// confirmed it, that is GPU memory; otherwise it is pinned host memory. If only some can access one another, both are
/// used: the ranks of an island exchange data through their GPUs' memory; all ranks together, and the ranks that have
/// the same place in their islands, do so through host memory.
class DeviceArenas {
 public:
  /// Opens the memory. Collective: all ranks get memory of the same kind, or an error.
  static Result<DeviceArenas> open(const DeviceRank::Request& request, kernels::Mailbox* mailbox);

  /// Returns the ring of all ranks. In this and the other rings everything is set except deadlines (slow_ns,
  /// timeout_ns) and what differs from launch to launch.
  const kernels::Ring& ring() const { return ring_; }
  bool is_staged() const { return ring_.staged; }
  /// Returns the rates of all ranks' GPUs over PCIe; unknown if NVLink connects them.
  const ExchangeRates& exchange_rates() const { return exchange_rates_; }
  const char* transport_name() const {
    return !is_staged() ? "cuda_p2p" : islands_.empty() ? "host_staged" : "islands";
  }
  /// Returns the islands; empty if all ranks form a single one, or each rank is alone.
  const std::vector<Island>& islands() const { return islands_; }
  /// Return the rings for islands(). island_ring(): this rank's island, in rank order. across_ring(): one rank of each
  /// island, in the order of the islands. If all islands have the same size, those are the ranks with this rank's place
  /// in their islands; otherwise they are the first ranks of all islands, and other ranks have no such ring (ranks ==
  /// 0).
  const kernels::Ring& island_ring() const { return island_ring_; }
  const kernels::Ring& across_ring() const { return across_ring_; }
  /// Return zeroed memory of this device: 2 * max_ranks words for barriers, and the counters of the launches of all
  /// rings. They lie behind the rings' lane counters, and all of these in the arena if that is GPU memory, because an
  /// allocation of its own takes 2 MB.
  std::byte* barrier_tokens() const { return barrier_and_launch_words_; }
  kernels::LaunchCounts* launch_counts() const {
    return reinterpret_cast<kernels::LaunchCounts*>(barrier_and_launch_words_ + barrier_bytes);
  }
  /// Returns scratch memory of this device for steps within islands (DeviceIslands).
  std::byte* island_scratch() const { return island_scratch_.data(); }

  /// Returns the host memory that all ranks share for large calls by copy engines (executor/copy_engine). Null unless
  /// data goes through host memory, there is more than one rank, and copy engines are wanted.
  const HostMemory* windows() const { return windows_.data() == nullptr ? nullptr : &windows_; }
  /// Returns the ring of the ranks whose contributions to an all-reduce meet in host memory: all ranks, or those of
  /// across_ring().
  const kernels::Ring& meeting_ring() const { return islands_.empty() ? ring_ : across_ring_; }
  /// For all-reduces that CPU threads add up: this GPU's ring of two with the threads, and the memory that all ranks
  /// share for this, in which the ranks of each meeting_ring() have their own part. Null unless data goes through host
  /// memory, there is more than one rank, and CPU threads are wanted.
  const kernels::Ring& reducers_ring() const { return reducers_ring_; }
  const HostMemory* reducers_memory() const { return reducers_memory_.data() == nullptr ? nullptr : &reducers_memory_; }
  cpu_reducers::ReducerMemory reducers_layout() const;
  std::size_t reducers_offset() const;  ///< where this rank's part begins, in bytes
  /// Returns the number of CPU threads for each rank of meeting_ring().
  std::uint32_t reducer_threads_per_rank() const { return reducer_threads_per_rank_; }
  /// Returns how many ranks are in any meeting_ring().
  std::size_t crossing_ranks() const { return meeting_count() * meeting_ranks(); }
  static constexpr std::uint8_t awaits_reducers = 255;  ///< in place of a rank: a kernel waits for CPU threads
  /// Returns the words that order the copies of copy engines between GPUs (copy_engine::PeerWords,
  /// copy_engine::MessageWords). Null unless there is more than one rank, data goes through GPU memory, and copy
  /// engines or registered memory are wanted.
  const HostMemory* peer_words() const { return peer_words_.data() == nullptr ? nullptr : &peer_words_; }
  /// Returns the window of copy_window_bytes() in the memory of `reader`'s GPU into which copy engines put chunks of
  /// `writer`, as this rank's device addresses it.
  std::byte* copy_window(std::uint32_t writer, std::uint32_t reader) const {
    const std::uint32_t after = (writer + ring_.ranks - reader) % ring_.ranks;
    return ring_.arenas[reader] + copy_windows_begin_ + (after - 1) * copy_window_bytes_;
  }
  std::size_t copy_window_bytes() const { return copy_window_bytes_; }
  /// Creates peer_words(). Collective.
  Status open_peer_words(const DeviceRank::Request& request);
  /// Returns the most thread blocks of a launch if ranks share a GPU: so few that the launches of all of them, and
  /// their next launches, fit on it at once. 0: each rank has its own GPU.
  std::uint32_t most_blocks() const { return most_blocks_; }
  /// Returns the SMs of the smallest GPU, or a rank's share of them if ranks share a GPU, without those that are spared
  /// (DeviceRank::Request::spared_sms).
  std::uint32_t least_sms() const { return least_sms_; }
  /// Returns the most thread blocks of a launch of messages with islands: two such launches may run side by side while
  /// the next of each are already on the GPU. 0 without islands.
  std::uint32_t most_message_blocks() const { return most_message_blocks_; }
  /// Returns why GPUs do not access one another's memory; empty if they do.
  const std::string& why_staged() const { return why_staged_; }

 private:
  Status bound_blocks(const DeviceRank::Request& request);
  static std::size_t counters_memory_bytes(std::size_t rings);
  static Result<Missing> gather(const DeviceRank::Request& request, std::uint32_t missing, const Status& own,
                                const std::string& what);
  Status open_islands(const DeviceRank::Request& request, kernels::Mailbox* mailbox);
  void give_up_islands(const std::string& why);
  /// Allocates this rank's arena, and maps those of its island, in which it has the place `place`.
  Result<Missing> open_island(const DeviceRank::Request& request, const Island& island, std::uint32_t place);
  /// Tests the mapped memory: kernels of all ranks, running at the same time, write to every peer of the island and
  /// wait for what the peers write. A failure must repeat itself.
  Result<Missing> probe(const DeviceRank::Request& request);
  Result<Missing> probe_once(const DeviceRank::Request& request, std::uint32_t attempt);
  Status run_probe(int device, std::uint32_t attempt, std::uint32_t& unreached) const;
  Status open_staging(const DeviceRank::Request& request);
  Status share_budget(const DeviceRank::Request& request);
  Status measure_rates(const DeviceRank::Request& request, const kernels::ArenaLayout& layout);
  Status open_large(const DeviceRank::Request& request);
  /// Makes across_ring_, whose slots in the staging arenas follow those of the ring of all ranks.
  Status join_across(const DeviceRank::Request& request, const kernels::ArenaLayout& layout,
                     const kernels::ArenaLayout& before);
  /// Allocates `bytes` of host memory on rank 0 and maps it on all ranks. `what`: its purpose, for errors. Collective.
  Result<HostMemory> share_one(const DeviceRank::Request& request, std::size_t bytes, const std::string& what,
                               std::span<const PlacedPart> places) const;
  std::size_t all_reducers_bytes() const;
  std::vector<PlacedPart> reducers_places() const;
  Status open_reducers(const DeviceRank::Request& request);
  /// Return how many ranks a meeting_ring() has, and how many such rings there are; the same on all ranks.
  std::size_t meeting_ranks() const { return islands_.empty() ? ring_.ranks : islands_.size(); }
  std::size_t meeting_count() const { return islands_.empty() || !are_alike(islands_) ? 1 : islands_.front().size(); }

  kernels::Ring ring_{}, island_ring_{}, across_ring_{}, reducers_ring_{};
  std::vector<Island> islands_;
  std::vector<RankNodes> nodes_;        ///< by rank; only if staged
  StagingShare staging_share_;          ///< only if staged
  StagingBudget budget_;                ///< division of staging_share_
  cuda::DeviceMemory counters_memory_;  ///< all rings' counters, Ring::gave_up and the words below, if not in the arena
  static constexpr std::size_t barrier_bytes = 2 * 8 * kernels::max_ranks, barrier_and_launch_words_bytes = 4096;
  static_assert(barrier_bytes + sizeof(kernels::LaunchCounts) <= barrier_and_launch_words_bytes);
  std::byte* barrier_and_launch_words_ = nullptr;
  cuda::DeviceMemory island_scratch_;
  std::vector<SharedMemory> peers_;  ///< by rank of the island, including this one
  std::vector<HostMemory> staging_;  ///< by rank, including this one
  HostMemory windows_, peer_words_, reducers_memory_;
  std::size_t copy_windows_begin_ = 0, copy_window_bytes_ = 0;  ///< behind the slots of every arena
  std::size_t counters_memory_begin_ = 0;                       ///< behind the windows, if all ranks are one island
  std::string why_staged_;
  ExchangeRates exchange_rates_;
  std::uint32_t reducer_threads_per_rank_ = 0;
  std::uint32_t most_blocks_ = 0, most_message_blocks_ = 0, least_sms_ = 0;
};

}  // namespace strait
