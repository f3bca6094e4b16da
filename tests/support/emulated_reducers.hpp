#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "executor/cpu_reducers/lane_reducers.hpp"
#include "support/emulated_launch.hpp"

namespace strait::testing {

/// Returns the system's thread ids of all CPU reducer threads of this process.
inline std::vector<pid_t> adding_threads() {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (name == "strait-reduce") threads.push_back(static_cast<pid_t>(std::stoi(entry.path().filename())));
  }
  return threads;
}
/// Waits until there are `count` of these threads; returns false if there are not within 20 seconds.
inline bool await_adding_threads(std::size_t count) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (adding_threads().size() != count) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Emulated GPU ranks whose all-reduces meet in host memory, each with CPU threads that add up what its kernels upload.
class ReducedRanks {
 public:
  struct Options {
    std::uint32_t lanes = 3;
    std::uint32_t max_sms = 0;
    cpu_reducers::Options threads{.threads = 1, .spin_us = 50, .nap_us = 20};
    std::uint64_t timeout_ns = 60'000'000'000;
    std::uint32_t averaged = 0;  ///< number of ranks that an average divides by; 0: `ranks`
    /// Changes a rank's ring before it is used; may be empty.
    std::function<void(std::uint32_t rank, kernels::Ring& ring)> adjust;
  };
  ReducedRanks(std::uint32_t ranks, const Options& options)
      : layout_{ranks, options.lanes, 4096},
        memory_(layout_.size_bytes()),
        mailboxes_(ranks),
        launch_counts_(ranks),
        counts_(ranks) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      counts_[rank].resize(kernels::lane_count);
      kernels::Ring ring{};
      ring.counts = counts_[rank].data();
      ring.mailbox = &mailboxes_[rank];
      ring.launch_counts = &launch_counts_[rank];
      ring.slow_ns = kernels::never_slow_ns;
      ring.timeout_ns = options.timeout_ns;
      ring.ranks = 2;
      ring.staged = true;
      ring.arenas[Memory::gpu] = memory_.data() + layout_.up(rank);
      ring.arenas[Memory::threads] = memory_.data() + layout_.down(rank);
      ring.slots[static_cast<std::size_t>(kernels::Protocol::bulk)] = layout_.protocol_slots(rank);
      ring.members[Memory::threads] = 77;
      if (options.adjust) options.adjust(rank, ring);
      calls_.emplace_back(ring, nullptr, DeviceCalls::Options{.max_sms = options.max_sms, .flagged_bytes = 0});
      cpu_reducers::LaneReducers::Setup setup;
      setup.memory = memory_.data();
      setup.layout = layout_;
      setup.rank = rank;
      setup.averaged = options.averaged == 0 ? ranks : options.averaged;
      setup.options = options.threads;
      setup.has_failed = [this] { return failed.load(); };
      reducers_.push_back(std::make_unique<cpu_reducers::LaneReducers>(std::move(setup)));
      EXPECT_TRUE(reducers_.back()->start());
    }
  }
  ~ReducedRanks() { failed = true; }

  /// A stream may have other work to do before the kernel: the rank is `late`. `captures`: the call is in a graph.
  void run(std::uint32_t rank, const Call& call, std::chrono::milliseconds late = {}, bool captures = false) {
    const DeviceLaunch launch = take(rank, call, captures);
    std::this_thread::sleep_for(late);
    run_launches({launch}, call.type, seed_);
  }
  /// As above, with a pause before each block, as if other kernels kept the SMs busy.
  void run_in_pauses(std::uint32_t rank, const Call& call, std::chrono::milliseconds pause, bool captures) {
    const DeviceLaunch launch = take(rank, call, captures);
    for (std::uint32_t block = 0; block < launch.blocks; ++block) {
      std::this_thread::sleep_for(pause);
      run_block(launch, block, call.type, ++seed_);
    }
  }
  cpu_reducers::LaneReducers& reducers(std::uint32_t rank) { return *reducers_[rank]; }
  kernels::Mailbox& mailbox(std::uint32_t rank) { return mailboxes_[rank]; }
  std::uint32_t ranks() const { return layout_.ranks; }

  std::atomic<bool> failed = false;

 private:
  using Memory = cpu_reducers::ReducerMemory;
  DeviceLaunch take(std::uint32_t rank, const Call& call, bool captures) {
    DeviceLaunch launch = calls_[rank].launch_to_reducers(call);
    if (captures)
      reducers_[rank]->expect_always();
    else
      reducers_[rank]->expect(std::get<kernels::Exchange>(launch.argument).send[Memory::threads]);
    return launch;
  }

  Memory layout_;
  Arena memory_;
  std::vector<kernels::Mailbox> mailboxes_;
  std::vector<kernels::LaunchCounts> launch_counts_;
  std::vector<std::vector<kernels::LaneCounts>> counts_;
  std::vector<DeviceCalls> calls_;
  std::vector<std::unique_ptr<cpu_reducers::LaneReducers>> reducers_;
  std::atomic<std::uint32_t> seed_{1};
};

}  // namespace strait::testing
