#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"
#include "support/emulated_launch.hpp"
#include "support/random_data.hpp"

namespace strait::testing {

/// Emulated ranks of one host. Their GPUs share only host memory, or, with `p2p`, reach each other's memory.
class Machine {
 public:
  struct Options {
    std::size_t flagged_bytes = 0;  ///< messages of up to this length use packets
    std::uint64_t first_use = 0;    ///< slot uses that every ring counts from the start
    bool p2p = false;
    const char* algorithm = "";
    bool piped = false;          ///< bulk messages use the piped kernels where they can
    double exchange_gbps = 0;    ///< bandwidth of the links, as if it had been measured
    bool small_slots = false;    ///< applies shrink_slots()
    bool together = false;       ///< blocks of a launch run concurrently
    std::uint32_t averaged = 0;  ///< number of ranks that averages divide by; 0: `ranks`
    std::size_t least_offered_bytes = ~std::size_t{0};
  };
  Machine(std::uint32_t ranks, std::uint32_t lanes, Options options)
      : ranks_(ranks),
        averaged_(options.averaged),
        together_(options.together),
        mailboxes_(ranks),
        launch_counts_(ranks),
        gave_up_(ranks),
        counts_(ranks) {
    const std::uint64_t first_use = options.first_use;
    auto layout = kernels::arena_layout(options.p2p ? kernels::ArenaKind::pcie : kernels::ArenaKind::host, ranks);
    if (options.small_slots) shrink_slots(layout);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      arenas_.push_back(std::make_unique<Arena>(layout.size_bytes));
      counts_[rank].assign(kernels::lane_count, kernels::LaneCounts{first_use, first_use, first_use, first_use});
      auto* returned = reinterpret_cast<std::uint64_t*>(arenas_[rank]->data());
      if (first_use != 0) std::fill_n(returned, kernels::lane_count, first_use);
    }
    tokens_.resize(ranks, Bytes(2 * 8 * kernels::max_ranks));
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      kernels::Ring ring{};
      for (std::uint32_t peer = 0; peer < ranks; ++peer) ring.arenas[peer] = arenas_[peer]->data();
      ring.counts = counts_[rank].data();
      ring.mailbox = &mailboxes_[rank];
      ring.launch_counts = &launch_counts_[rank];
      ring.gave_up = &gave_up_[rank];  // as on a communicator with deadlines
      ring.slow_ns = kernels::never_slow_ns;
      ring.timeout_ns = 60'000'000'000;
      ring.rank = rank;
      ring.ranks = ranks;
      ring.averaged = averaged();
      for (std::uint32_t peer = 0; peer < ranks; ++peer) ring.members[peer] = static_cast<std::uint8_t>(peer);
      ring.staged = !options.p2p;
      ring.has_async_copies = options.piped;
      std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
      rings_.push_back(ring);
      calls_.emplace_back(ring, tokens_[rank].data(),
                          DeviceCalls::Options{.max_sms = lanes,
                                               .flagged_bytes = options.flagged_bytes,
                                               .hops = hops_of(options.algorithm),
                                               .piped_unit_bytes = 0,
                                               .exchange_gbps = options.exchange_gbps,
                                               .least_offered_bytes = options.least_offered_bytes});
    }
  }

  void run(std::uint32_t rank, const Call& call) {
    const std::vector<DeviceLaunch> launches = calls_[rank].launches_of(call);
    EXPECT_FALSE(calls_[rank].caller_copies_own(call, launches)) << "too long for the emulation";
    run(launches, call.type);
  }
  void run(const std::vector<DeviceLaunch>& launches, DataType type) { run_launches(launches, type, seed_, together_); }
  void run(const AggregateLaunch& launch) { run_launch(launch, seed_); }
  const DeviceCalls& calls(std::uint32_t rank) const { return calls_[rank]; }
  kernels::Mailbox& mailbox(std::uint32_t rank) { return mailboxes_[rank]; }
  kernels::LaunchCounts& launch_counts(std::uint32_t rank) { return launch_counts_[rank]; }
  /// Returns how many bulk slots `rank` has filled for `peer` on `lane`.
  std::uint64_t sent(std::uint32_t rank, std::uint32_t peer, std::uint32_t lane) const {
    return counts_[rank][kernels::lane_index(kernels::Protocol::bulk, kernels::Cast::single, peer, lane)].sent;
  }
  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t averaged() const { return averaged_ == 0 ? ranks_ : averaged_; }

 private:
  std::uint32_t ranks_, averaged_;
  bool together_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<kernels::Mailbox> mailboxes_;
  std::vector<kernels::LaunchCounts> launch_counts_;
  std::vector<std::uint32_t> gave_up_;
  std::vector<std::vector<kernels::LaneCounts>> counts_;
  std::vector<Bytes> tokens_;
  std::vector<kernels::Ring> rings_;
  std::vector<DeviceCalls> calls_;
  std::atomic<std::uint32_t> seed_{1};
};

}  // namespace strait::testing
