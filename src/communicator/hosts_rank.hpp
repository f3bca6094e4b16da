#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/time_limited_questions.hpp"
#include "communicator/comm.hpp"
#include "communicator/hosts_request.hpp"
#include "device/call_order.hpp"
#include "device/device_rank.hpp"
#include "device/side_streams.hpp"
#include "executor/cuda/launcher.hpp"
#include "executor/cuda/runtime.hpp"
#include "launches/device_islands.hpp"
#include "network/network_calls.hpp"
#include "network/network_proxy.hpp"

namespace strait {

/// A GPU rank of a communicator of several hosts. DeviceIslands splits its calls, with each host as an island. Data
/// within a host goes through a communicator of the host's GPUs. Data that leaves a host goes through pinned host
/// memory and communicators of host ranks, which the rank's proxy drives. All of this follows the order of the user's
/// streams. If any of these communicators fails, on any rank, all fail.
class HostsRank final : public DeviceRank {
 public:
  explicit HostsRank(HostsRequest request) : request_(std::move(request)) {}
  ~HostsRank() override;
  Status prepare();

  const char* transport_name() const override { return transport_name_.c_str(); }
  const std::string& transport_why() const override { return request_.host->transport_why(); }
  const ExchangeRates& exchange_rates() const override { return request_.host->exchange_rates(); }
  std::size_t wire_pays_bytes() const override { return 0; }
  Status enqueue(const Call& call) override;
  std::size_t aggregated_calls(std::span<const Call> /*group*/) const override { return 1; }
  Status enqueue_aggregate(std::span<const Call> calls) override;
  Status enqueue_messages(std::span<const Call> calls) override;
  Status order_streams(void* first, void* then) override { return order_->order(first, then); }
  Result<std::uint64_t> capture_of(void* stream) override {
    return order_->look_at(stream).map([this](bool) { return order_->capture_id(); });
  }
  void raise_pending_failures() const override;
  std::optional<bool> is_idle() const override;
  std::optional<DeviceProgress> progress() override;
  Status prepare_call(const Call& call) override;
  Status register_memory(std::uint64_t number, void* pointer, std::size_t bytes) override;
  Status deregister_memory(std::uint64_t number) override;
  void drop_unused_registration(std::uint64_t number) override;
  Status await_work() override;

 private:
  Status open_memory();
  Status open_order();
  Status open_proxy();
  Status carry_out(const Call& call);
  Status carry_out(const IslandStep& step);
  // What lies in the pinned memory and in memory_.
  kernels::Mailbox* mailbox() const;
  kernels::NetworkWords* words() const;
  std::byte* slots() const;
  kernels::LaunchCounts* launch_counts() const;
  std::byte* scratch() const;
  Status carry_messages(std::span<const Call> calls, void* stream);
  /// `max_sms`: see Call.
  Status launch(const NetworkLaunch& what, std::uint32_t max_sms, void* stream);
  Status launch_waking(const std::function<Status()>& launch, void* stream);
  /// What a graph passes to wake() when it comes to its first call on this communicator.
  struct Wake {
    Wake(NetworkProxy& woken, std::uint64_t of_capture) : proxy(woken), capture(of_capture) {}
    NetworkProxy& proxy;
    const std::uint64_t capture;
    std::atomic<std::uint64_t> calls{1};  ///< calls of the graph, which the proxy is to expect
  };
  static void wake(void* wake);
  Comm& comm_of(std::uint32_t lane, kernels::NetworkCall::Among among) const {
    return *(among == kernels::NetworkCall::Among::across ? request_.across : request_.all)[lane];
  }
  bool has_own_work_ended() {
    return order_->await_idle([watch = request_.watch] { return watch->has_failed(); });
  }
  void run_attendant(const std::stop_token& stop);
  void raise_if_gpu_failed() const;

  std::optional<cuda::RelaxedDeviceScope> ending_;
  HostsRequest request_;
  std::vector<Comm*> parts_;  ///< all internal communicators: asked for failures at each call
  std::string transport_name_;
  std::optional<cuda::Launcher> launcher_;
  cuda::MappedMemory mailbox_, seen_;
  cuda::MappedMemory network_;  ///< kernels::NetworkWords, and slots
  cuda::DeviceMemory memory_;   ///< counters, and behind them the scratch of DeviceIslands
  DeviceIslands hosts_;
  NetworkCalls calls_;
  std::unique_ptr<CallOrder> order_;
  std::unique_ptr<SideStreams> side_;    ///< for what leaves the host, if a group of messages has both kinds
  std::unique_ptr<SideStreams> waking_;  ///< for wake(), in graphs
  std::deque<Wake> wakes_;               ///< kept for graphs, which may run as long as this object lives
  std::unique_ptr<TimeLimitedQuestions> questions_;
  std::unique_ptr<NetworkProxy> proxy_;
  std::jthread attendant_;  ///< last, so that it ends before the members that it uses
};

}  // namespace strait
