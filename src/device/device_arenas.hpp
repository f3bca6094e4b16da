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

/// The memory through which the ranks of a host trade: that of their GPUs where each reaches all others and a probe has
/// shown it, pinned host memory else. Where only some reach one another, both: the islands that they form trade through
/// their GPUs' memory, and all ranks, and those of the same place in their islands, through host memory.
class DeviceArenas {
 public:
  /// Collective: all ranks end with memory of the same kind, or with an error.
  static Result<DeviceArenas> open(const DeviceRank::Request& request, kernels::Mailbox* mailbox);

  /// All ranks. Everything of a ring but its times is set.
  const kernels::Ring& ring() const { return ring_; }
  bool is_staged() const { return ring_.staged; }
  /// Of all ranks' GPUs by PCIe; nothing is known of those that NVLink joins.
  const ExchangeRates& exchange_rates() const { return exchange_rates_; }
  const char* transport_name() const {
    return !is_staged() ? "cuda_p2p" : islands_.empty() ? "host_staged" : "islands";
  }
  /// Empty where all ranks are one island, or each its own.
  const std::vector<Island>& islands() const { return islands_; }
  /// Of islands(): this rank's, whose ranks are counted in rank order; and one rank of each island, counted as the
  /// islands are: where all islands are of one size the ranks of this one's place, else the first ones, and a rank that
  /// is no first one has none (ranks == 0).
  const kernels::Ring& island_ring() const { return island_ring_; }
  const kernels::Ring& across_ring() const { return across_ring_; }
  /// Of this device's memory, zeroed: 2 * max_ranks words, and what all rings' launches count. They lie with the rings'
  /// counts, and these where they can in the arena, for an allocation of its own takes 2 MB.
  std::byte* barrier_tokens() const { return words_; }
  kernels::LaunchCounts* launch_counts() const {
    return reinterpret_cast<kernels::LaunchCounts*>(words_ + barrier_bytes);
  }
  /// Of this device's memory, for steps within islands (DeviceIslands).
  std::byte* island_scratch() const { return island_scratch_.data(); }

  /// Staged, more than one rank, and copy engines wanted: memory that all ranks share for large messages
  /// (executor/copy_engine). Else null.
  const HostMemory* windows() const { return windows_.data() == nullptr ? nullptr : &windows_; }
  /// The ranks whose parts of an all-reduce meet in host memory: all, or those of across_ring().
  const kernels::Ring& meeting_ring() const { return islands_.empty() ? ring_ : across_ring_; }
  /// Staged, more than one rank, and CPU threads are to reduce what meeting_ring() brings: this rank's ring with them,
  /// and the memory that all ranks share for it, in which these have a part of their own. Else null.
  const kernels::Ring& reducers_ring() const { return reducers_ring_; }
  const HostMemory* reducers_memory() const { return reducers_memory_.data() == nullptr ? nullptr : &reducers_memory_; }
  cpu_reducers::ReducerMemory reducers_layout() const;
  std::size_t reducers_offset() const;                                  ///< in bytes
  std::uint32_t reducers_of_each() const { return reducers_of_each_; }  ///< threads of a rank of meeting_ring()
  /// How many ranks are in such rings.
  std::size_t crossing_ranks() const { return meetings() * meeting_ranks(); }
  static constexpr std::uint8_t awaits_reducers = 255;  ///< in place of a rank that a kernel waits for
  /// Of more than one rank, through their GPUs' memory, and copy engines or registered memory wanted: the words by
  /// which copies are in order (copy_engine::PeerWords, copy_engine::MessageWords). Else null.
  const HostMemory* peer_words() const { return peer_words_.data() == nullptr ? nullptr : &peer_words_; }
  /// Likewise: where `writer` puts chunks for `reader`, of copy_window_bytes(), as this rank's device addresses it.
  std::byte* copy_window(std::uint32_t writer, std::uint32_t reader) const {
    const std::uint32_t after = (writer + ring_.ranks - reader) % ring_.ranks;
    return ring_.arenas[reader] + copy_windows_begin_ + (after - 1) * copy_window_bytes_;
  }
  std::size_t copy_window_bytes() const { return copy_window_bytes_; }
  /// Makes peer_words(). Collective.
  Status open_peer_words(const DeviceRank::Request& request);
  /// Of a launch, where ranks share a GPU: so many that those of all of them, and of their next launches, find room on
  /// it at once. 0: each has a GPU of its own.
  std::uint32_t most_blocks() const { return most_blocks_; }
  /// That a rank has: of its GPU, or its share of one.
  std::uint32_t least_sms() const { return least_sms_; }
  /// Likewise, of messages of ranks that form islands: two such launches may run side by side, and the next ones of
  /// both be there already.
  std::uint32_t most_message_blocks() const { return most_message_blocks_; }
  /// Why not directly: empty where it is.
  const std::string& why_staged() const { return why_staged_; }

 private:
  Status bound_blocks(const DeviceRank::Request& request);
  static std::size_t own_bytes(std::size_t rings);
  static Result<Missing> gather(const DeviceRank::Request& request, std::uint32_t missing, const Status& own,
                                const std::string& what);
  Status open_islands(const DeviceRank::Request& request, kernels::Mailbox* mailbox);
  void give_up_islands(const std::string& why);
  /// Maps the memory of the GPUs of this rank's island, in which it has that place.
  Result<Missing> open_island(const DeviceRank::Request& request, const Island& island, std::uint32_t place);
  /// Writes to every peer of the island and waits for what it writes, by kernels that run at the same time.
  Result<Missing> probe(const DeviceRank::Request& request);
  Status run_probe(int device, std::uint32_t& unreached) const;
  Status open_staging(const DeviceRank::Request& request);
  Status share_budget(const DeviceRank::Request& request);
  Status measure_rates(const DeviceRank::Request& request, const kernels::ArenaLayout& layout);
  Status open_large(const DeviceRank::Request& request);
  /// The ring of one rank of each island, in the staging arenas, behind that of all ranks.
  Status join_across(const DeviceRank::Request& request, const kernels::ArenaLayout& layout,
                     const kernels::ArenaLayout& before);
  /// Of `bytes`, rank 0's, which all map. `what`: of it an error names.
  Result<HostMemory> share_one(const DeviceRank::Request& request, std::size_t bytes, const std::string& what,
                               std::span<const PlacedPart> places) const;
  std::size_t all_reducers_bytes() const;
  std::vector<PlacedPart> reducers_places() const;
  Status open_reducers(const DeviceRank::Request& request);
  /// How many meet, and how many such groups of ranks there are: the same on all ranks.
  std::size_t meeting_ranks() const { return islands_.empty() ? ring_.ranks : islands_.size(); }
  std::size_t meetings() const { return islands_.empty() || !are_alike(islands_) ? 1 : islands_.front().size(); }

  kernels::Ring ring_{}, island_ring_{}, across_ring_{}, reducers_ring_{};
  std::vector<Island> islands_;
  std::vector<RankNodes> nodes_;  ///< staged: by rank
  StagingShare staging_share_;    ///< staged
  StagingBudget budget_;          ///< of it
  cuda::DeviceMemory own_;        ///< of all rings' counts, Ring::gave_up and the words, where not in the arena
  static constexpr std::size_t barrier_bytes = 2 * 8 * kernels::max_ranks, words_bytes = 4096;
  static_assert(barrier_bytes + sizeof(kernels::LaunchCounts) <= words_bytes);
  std::byte* words_ = nullptr;
  cuda::DeviceMemory island_scratch_;
  std::vector<SharedMemory> peers_;  ///< by rank of the island, this rank's own among them
  std::vector<HostMemory> staging_;  ///< by rank, likewise
  HostMemory windows_, peer_words_, reducers_memory_;
  std::size_t copy_windows_begin_ = 0, copy_window_bytes_ = 0;  ///< in every arena, behind the slots
  std::size_t own_begin_ = 0;                                   ///< behind these, where all ranks are one island
  std::string why_staged_;
  ExchangeRates exchange_rates_;
  std::uint32_t reducers_of_each_ = 0;
  std::uint32_t most_blocks_ = 0, most_message_blocks_ = 0, least_sms_ = 0;
};

}  // namespace strait
