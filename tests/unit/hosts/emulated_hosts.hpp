#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "communicator/comm.hpp"
#include "launches/device_islands.hpp"
#include "network/network_calls.hpp"
#include "network/network_proxy.hpp"
#include "support/emulated_islands.hpp"
#include "support/emulated_network.hpp"

namespace strait::testing {

/// GPU ranks of several hosts, connected as HostsRank does it, but without GPUs. Data that stays within a host goes
/// through kernels on the CPU; data that leaves it goes through such kernels, proxies, and communicators of host ranks
/// over TCP.
class EmulatedHosts {
 public:
  /// One rank, used by its own thread.
  struct Rank {
    std::uint32_t number = 0;
    EmulatedHosts* hosts = nullptr;
    std::vector<std::unique_ptr<Comm>> all, across;  ///< by lane
    Bytes scratch;
    std::unique_ptr<Arena> memory;
    kernels::Mailbox mailbox{};
    kernels::LaunchCounts launch_counts{};
    kernels::NetworkCounts counts{};
    std::unique_ptr<NetworkProxy> proxy;
    std::atomic<std::uint32_t> seed{1};
    std::uint32_t max_sms = 0;

    std::vector<Comm*> parts() const {
      std::vector<Comm*> parts;
      for (const auto* comms : {&all, &across})
        for (const auto& comm : *comms) parts.push_back(comm.get());
      return parts;
    }
    bool has_failed() const {
      const auto comms = parts();
      return std::any_of(comms.begin(), comms.end(), [](const Comm* comm) { return !comm->sticky(); });
    }
    /// Returns the error messages of all its communicators that have failed.
    std::string failures() const {
      std::string text;
      for (const Comm* comm : parts())
        if (const Status failed = comm->sticky(); !failed) text += failed.error().message + "\n";
      return text;
    }
    void run(const Call& call) {
      const DeviceIslands steps(number, hosts->islands_, scratch.data(), scratch.size());
      if (!steps.carries(call)) return run({IslandStep::Among::all, call});
      for (const IslandStep& step : steps.steps_of(call)) run(step);
    }
    void run_messages(std::span<const Call> messages) {
      for (const NetworkLaunch& launch : hosts->calls(number).launches_of_messages(messages)) run(launch);
    }

   private:
    void run(const IslandStep& step) {
      if (step.among == IslandStep::Among::island)
        return run_launches(hosts->inside_.inside(number).launches_of(step.call), step.call.type, seed);
      for (const NetworkLaunch& launch : hosts->calls(number).launches_of(step)) run(launch);
    }
    void run(const NetworkLaunch& launch) {
      for (const auto& [to, from, bytes] : launch.copies) std::memcpy(to, from, bytes);
      if (launch.flows.empty() && launch.call.collective == Collective::send_recv) return;
      kernels::NetworkExchange argument{};
      argument.ring.mailbox = &mailbox;
      argument.ring.launch_counts = &launch_counts;
      argument.ring.ranks = 1;
      argument.words = reinterpret_cast<kernels::NetworkWords*>(memory->data());
      argument.slots = memory->data() + kernels::network_words_bytes;
      argument.counts = &counts;
      argument.slot_bytes = slot_bytes;
      argument.first_step = launch.first_step;
      argument.end_step = launch.end_step;
      argument.local_copy_to = launch.local_copy.to;
      argument.local_copy_from = launch.local_copy.from;
      argument.local_copy_bytes = static_cast<std::uint32_t>(launch.local_copy.bytes);
      argument.call = launch.call;
      argument.call.flow_count = static_cast<std::uint32_t>(launch.flows.size());
      argument.call.blocks = NetworkCalls::blocks_for(launch, max_sms);
      std::copy(launch.flows.begin(), launch.flows.end(), argument.flows);
      if (launch.first_step == 0) proxy->expect();
      run_network(argument, ++seed);
    }
    friend class EmulatedHosts;
  };

  explicit EmulatedHosts(Islands hosts)
      : islands_(std::move(hosts)), inside_(islands_, {.lanes = 2, .timeout_ns = longest()}) {
    setenv("STRAIT_TRANSPORT", "tcp", 1);
  }
  ~EmulatedHosts() { unsetenv("STRAIT_TRANSPORT"); }
  std::uint32_t ranks() const { return inside_.ranks(); }

  /// Runs `body` on all ranks, each on its own thread.
  void run(const std::function<void(Rank& rank)>& body) {
    const auto id = create_unique_id(Environment(), {});
    ASSERT_TRUE(id) << id.error().message;
    std::vector<std::jthread> threads;
    for (std::uint32_t number = 0; number < ranks(); ++number)
      threads.emplace_back([&, number] {
        Rank rank;
        ASSERT_NO_FATAL_FAILURE(open(rank, number, *id));
        body(rank);
        if (rank.has_failed()) fail(rank);
        rank.proxy->drain();
        rank.proxy.reset();
      });
  }
  /// Ends everything that a rank waits for. All its communicators fail with one error, as those of a HostsRank do: that
  /// of the first that has failed, so that other ranks hear it whichever they ask first.
  static void fail(Rank& rank) {
    Error error{Code::aborted, "no communicator of the rank had failed"};
    for (const Comm* comm : rank.parts())
      if (const Status failed = comm->sticky(); !failed) {
        error = failed.error();
        break;
      }
    fail(rank, error);
  }
  static void fail(Rank& rank, const Error& error) {
    std::atomic_ref(rank.mailbox.abort) = 1;
    for (Comm* comm : rank.parts()) comm->fail_in(error);
  }

 private:
  static constexpr std::uint32_t slot_bytes = 1 << 20, lanes = 3, exact_lanes = 2;
  /// Timeout of a step. It may take minutes if many threads poll on few cores under a sanitizer.
  static constexpr std::uint32_t longest_ms = 300'000;

  static std::vector<std::uint64_t> longest() {
    return std::vector<std::uint64_t>(kernels::max_ranks, longest_ms * std::uint64_t{1'000'000});
  }
  NetworkCalls calls(std::uint32_t rank) const { return {rank, islands_, {slot_bytes, piece_bytes_, exact_lanes}}; }
  void open(Rank& rank, std::uint32_t number, const UniqueId& id) {
    rank.number = number;
    rank.hosts = this;
    rank.scratch.resize(std::size_t{256} << 10);
    rank.memory = std::make_unique<Arena>(kernels::network_bytes(slot_bytes));
    JoinOptions place;
    place.rank = static_cast<int>(number);
    place.ranks = static_cast<int>(ranks());
    place.wait = {Deadline::after_ms(20'000), nullptr};
    auto channel = join(id, place);
    ASSERT_TRUE(channel) << channel.error().message;
    CommOptions options;
    options.timeout_ms = longest_ms;
    auto first = Comm::create(std::move(*channel), options);
    ASSERT_TRUE(first) << first.error().message;
    rank.all.push_back(std::move(*first));
    piece_bytes_ = network_piece_bytes(slot_bytes, rank.all.front()->slot_bytes());
    const auto [host, in_host] = place_of(islands_, number);
    const auto split = [&](std::vector<std::unique_ptr<Comm>>& parts, int color, int key) {
      auto part = rank.all.front()->split(color, key, options);
      ASSERT_TRUE(part) << part.error().message;
      if (*part) parts.push_back(std::move(*part));
    };
    while (rank.all.size() < lanes) ASSERT_NO_FATAL_FAILURE(split(rank.all, 0, static_cast<int>(number)));
    const bool crosses = are_alike(islands_) || in_host == 0;
    options.averaged = ranks();
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
      ASSERT_NO_FATAL_FAILURE(split(rank.across, crosses ? static_cast<int>(in_host) : -1, static_cast<int>(host)));
    NetworkProxy::Setup setup;
    setup.words = reinterpret_cast<kernels::NetworkWords*>(rank.memory->data());
    setup.slots = rank.memory->data() + kernels::network_words_bytes;
    setup.slot_bytes = slot_bytes;
    setup.lanes = lanes;
    setup.exact_lanes = exact_lanes;
    setup.run = [&rank](std::uint32_t lane, auto among, const Call& call) {
      return (among == kernels::NetworkCall::Among::across ? rank.across : rank.all)[lane]->run(call);
    };
    setup.run_messages = [&rank](std::uint32_t lane, std::span<const Call> messages, MessagePieces& pieces) {
      return rank.all[lane]->run_messages(messages, pieces);
    };
    setup.receive_early = [&rank](std::uint32_t lane, auto among) {
      const auto& comms = among == kernels::NetworkCall::Among::across ? rank.across : rank.all;
      if (!comms.empty()) comms[lane]->receive_early();
    };
    setup.has_failed = [&rank] {
      if (!rank.has_failed()) return false;
      std::atomic_ref(rank.mailbox.abort) = 1;  // as a rank's attendant does; otherwise its kernel would wait forever
      return true;
    };
    setup.fail = [&rank](const Error& error) { fail(rank, error); };
    rank.proxy = std::make_unique<NetworkProxy>(std::move(setup));
    const Status started = rank.proxy->start();
    ASSERT_TRUE(started) << started.error().message;
  }

  Islands islands_;
  EmulatedIslands inside_;
  std::atomic<std::uint32_t> piece_bytes_{0};
};

}  // namespace strait::testing
