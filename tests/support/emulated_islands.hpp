#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"
#include "launches/device_islands.hpp"
#include "support/emulated_reducers.hpp"
#include "support/island_reference.hpp"
#include "support/random_data.hpp"

namespace strait::testing {

/// Emulated ranks whose GPUs reach one another over PCIe within an island, and otherwise only share host memory.
class EmulatedIslands {
 public:
  struct Options {
    std::uint32_t lanes = 2;
    std::size_t flagged_bytes = 0;
    std::vector<std::uint64_t> timeout_ns{};  ///< by rank; empty: 60 s for all
    bool by_cpus = false;                     ///< CPU threads add up all-reduces across islands
    bool small_slots = false;                 ///< applies shrink_slots()
  };
  EmulatedIslands(Islands islands, Options options) : islands_(std::move(islands)), options_(std::move(options)) {
    Island all;
    for (const Island& island : islands_) all.insert(all.end(), island.begin(), island.end());
    std::sort(all.begin(), all.end());
    ranks_ = std::vector<Rank>(all.size());
    for (Rank& rank : ranks_) rank.scratch.resize(scratch_bytes);
    join(all, kernels::ArenaKind::host, &Rank::all);
    for (const Island& island : islands_)  // an island of one has no peer memory, only the host's
      join(island, island.size() == 1 ? kernels::ArenaKind::host : kernels::ArenaKind::pcie, &Rank::island);
    const std::size_t places = are_alike(islands_) ? islands_.front().size() : 1;
    for (std::size_t place = 0; place < places; ++place) {
      Island members;
      for (const Island& island : islands_) members.push_back(island[place]);
      join(members, kernels::ArenaKind::host, &Rank::across);
      if (options_.by_cpus) join_reducers(members);
    }
  }

  void run(std::uint32_t number, const Call& call) {
    Rank& rank = ranks_[number];
    const DeviceIslands islands(number, islands_, rank.scratch.data(), scratch_bytes);
    ASSERT_TRUE(islands.carries(call));
    for (const IslandStep& step : islands.steps_of(call)) {
      const bool crosses = step.among == IslandStep::Among::across;
      if (crosses && rank.reduced && step.call.collective == Collective::all_reduce) {
        rank.reduced->run(rank.place, step.call);
        continue;
      }
      const DeviceCalls& calls = step.among == IslandStep::Among::all      ? rank.all
                                 : step.among == IslandStep::Among::island ? rank.island
                                                                           : rank.across;
      run_launches(calls.launches_of(step.call), call.type, seed_);
    }
  }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const kernels::Mailbox& mailbox(std::uint32_t rank) const { return ranks_[rank].mailbox; }
  kernels::LaunchCounts& launch_counts(std::uint32_t rank) { return ranks_[rank].launch_counts; }
  /// A rank's calls within its island, and those among all ranks.
  const DeviceCalls& inside(std::uint32_t rank) const { return ranks_[rank].island; }
  const DeviceCalls& with_all(std::uint32_t rank) const { return ranks_[rank].all; }

 private:
  static constexpr std::size_t scratch_bytes = std::size_t{256} << 10;
  static constexpr std::uint64_t long_ns = 60'000'000'000;
  struct Rank {
    DeviceCalls all, island, across;
    std::vector<std::vector<kernels::LaneCounts>> counts;
    kernels::Mailbox mailbox;
    kernels::LaunchCounts launch_counts{};
    std::uint32_t gave_up = 0;
    Bytes scratch;
    ReducedRanks* reduced = nullptr;  ///< its peers in all-reduces across islands by CPU threads; null: none
    std::uint32_t place = 0;          ///< this rank's number among them
  };

  void join(const Island& members, kernels::ArenaKind kind, DeviceCalls Rank::*calls) {
    const auto count = static_cast<std::uint32_t>(members.size());
    auto layout = kernels::arena_layout(kind, count);
    if (options_.small_slots) shrink_slots(layout);
    kernels::Ring ring{};
    for (std::uint32_t i = 0; i < count; ++i) {
      arenas_.push_back(std::make_unique<Arena>(layout.size_bytes));
      ring.arenas[i] = arenas_.back()->data();
      ring.members[i] = static_cast<std::uint8_t>(members[i]);
    }
    ring.slow_ns = kernels::never_slow_ns;
    ring.ranks = count;
    ring.averaged = ranks();
    ring.staged = kind == kernels::ArenaKind::host;
    std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
    for (std::uint32_t i = 0; i < count; ++i) {
      Rank& rank = ranks_[members[i]];
      rank.counts.emplace_back(kernels::lane_count);
      ring.counts = rank.counts.back().data();
      ring.mailbox = &rank.mailbox;
      ring.launch_counts = &rank.launch_counts;
      ring.gave_up = &rank.gave_up;
      ring.rank = i;
      ring.timeout_ns = timeout_of(members[i]);
      rank.*calls = DeviceCalls(ring, nullptr, {.max_sms = options_.lanes, .flagged_bytes = options_.flagged_bytes});
    }
  }
  void join_reducers(const Island& members) {
    const auto adjust = [&](std::uint32_t i, kernels::Ring& ring) {
      ring.mailbox = &ranks_[members[i]].mailbox;
      ring.launch_counts = &ranks_[members[i]].launch_counts;
      ring.gave_up = &ranks_[members[i]].gave_up;
      ring.timeout_ns = timeout_of(members[i]);
    };
    reduced_.push_back(std::make_unique<ReducedRanks>(
        static_cast<std::uint32_t>(members.size()),
        ReducedRanks::Options{.lanes = options_.lanes, .averaged = ranks(), .adjust = adjust}));
    for (std::uint32_t i = 0; i < members.size(); ++i) {
      ranks_[members[i]].reduced = reduced_.back().get();
      ranks_[members[i]].place = i;
    }
  }
  std::uint64_t timeout_of(std::uint32_t rank) const {
    return options_.timeout_ns.empty() ? long_ns : options_.timeout_ns[rank];
  }

  Islands islands_;
  Options options_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<ReducedRanks>> reduced_;
  std::atomic<std::uint32_t> seed_{1};
};

}  // namespace strait::testing
