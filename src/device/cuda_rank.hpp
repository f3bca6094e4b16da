#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/in_time.hpp"
#include "device/aggregates.hpp"
#include "device/call_order.hpp"
#include "device/device_arenas.hpp"
#include "device/device_copies.hpp"
#include "device/device_rank.hpp"
#include "device/device_reducers.hpp"
#include "device/device_registrations.hpp"
#include "device/island_messages.hpp"
#include "device/memory/host_memory.hpp"
#include "device/side_streams.hpp"
#include "device/started_calls.hpp"
#include "executor/cuda/launcher.hpp"
#include "executor/cuda/runtime.hpp"
#include "launches/device_calls.hpp"
#include "launches/device_islands.hpp"
#include "launches/device_quantized.hpp"

namespace strait {

/// A GPU rank of one host, over memory that peers reach directly (NVLink, PCIe P2P) or over pinned host memory. How it
/// begins and ends: cuda_rank.cpp; what it gives to streams: cuda_rank_enqueue.cpp.
class CudaRank final : public DeviceRank {
 public:
  explicit CudaRank(const Request& request) : request_(request) {}
  ~CudaRank() override;
  Status prepare();

  const char* transport_name() const override { return arenas_.transport_name(); }
  const std::string& transport_why() const override { return arenas_.why_staged(); }
  const ExchangeRates& exchange_rates() const override { return arenas_.exchange_rates(); }
  std::size_t wire_pays_bytes() const override { return calls_.encoded_bytes(); }
  Status enqueue(const Call& call) override;
  std::size_t aggregated_calls(std::span<const Call> group) const override;
  Status enqueue_aggregate(std::span<const Call> calls) override;
  Status enqueue_messages(std::span<const Call> calls) override;
  Status order_streams(void* first, void* then) override { return order_->order(first, then); }
  Result<std::uint64_t> capture_of(void* stream) override {
    return order_->look_at(stream).map([this](bool) { return order_->capture_id(); });
  }
  void hear_of_failures() const override;
  std::optional<bool> is_idle() const override;
  std::optional<DeviceProgress> progress() override;
  Status prepare_call(const Call& call) override;
  Status register_memory(std::uint64_t number, void* pointer, std::size_t bytes) override;
  Status deregister_memory(std::uint64_t number) override;
  void forget_memory(std::uint64_t number) override;
  Status await_work() override;

 private:
  using Tail = CallOrder::Tail;
  Status open_order();
  Status load_kernels();
  /// `most_blocks`: as in DeviceCalls::Options.
  DeviceCalls calls_over(kernels::Ring ring, std::uint32_t most_blocks) const;
  Status open_islands();
  Status open_copies();
  Status open_wire_formats();
  /// Whether a call in a wire format is encoded on its way between the ranks of `calls`. What copy engines carry is
  /// bytes.
  bool encodes_on_the_way(const DeviceCalls& calls, const Call& call) const {
    return !DeviceCopies::are_wanted(request_, arenas_.is_staged()) && calls.pays_to_encode(call);
  }
  void begin_marking(const Call& call);
  void end_marking(const Call& call, Tail tail);
  Status end(const Call& call, const Result<Tail>& tail);
  bool goes_by_islands(const Call& call) const;
  bool may_go_straight(const Call& call) const;
  Result<std::optional<DeviceRegistrations::Place>> place_of_output(const Call& call) const;
  /// `offered`: gets what is wrong with memory that is asked for; it outlives what this returns.
  DeviceCalls::Offers offers_into(Status& offered) const;
  void keep_for_graphs(std::span<const DeviceLaunch> launches);
  Result<Tail> carry_out(const Call& call);
  Result<Tail> enqueue_exact(const Call& call);
  /// `exchange`: what carries its exchanges of bytes out.
  template <class Exchange>
  Result<Tail> enqueue_encoded(const std::vector<QuantizedStep>& steps, void* stream, Exchange&& exchange);
  Result<Tail> enqueue_in_islands(const Call& call);
  /// `quantized`: of the ranks that meet.
  Result<Tail> enqueue_to_reducers(const DeviceQuantized& quantized, const Call& call);
  Result<Tail> enqueue_over(const DeviceCalls& calls, const Call& call);
  /// Of one group, on the first one's stream.
  Result<Tail> carry_messages(std::span<const Call> calls);
  Result<Tail> launch_all(std::vector<DeviceLaunch> launches, const Call& call);
  Status launch(DeviceLaunch& what, const Call& call);
  Status launch(AggregateLaunch& what);
  Status launch(const WireLaunch& what, void* stream);
  bool has_own_work_ended() {
    return order_->await_idle([watch = request_.watch] { return watch->has_failed(); });
  }
  void tell_of_failed_gpu() const;
  Status error_of_gpu(const std::string& what) const;
  Status check_gpu() const;
  void look_after(const std::stop_token& stop);
  std::optional<kernels::LaunchCounts> read_counts() const;

  std::optional<cuda::RelaxedDeviceScope> ending_;
  Request request_;
  std::shared_ptr<const void> keeps_pinned_ = HostMemory::keep_pinned();  ///< until all else has ended
  std::optional<cuda::Launcher> launcher_;                                ///< from prepare() on
  cuda::MappedMemory mailbox_;
  DeviceArenas arenas_;
  kernels::Ring ring_{};
  DeviceCalls calls_;
  DeviceIslands islands_;
  DeviceCalls island_calls_, across_calls_;
  std::unique_ptr<SideStreams> side_;                ///< for the root's own part of a long broadcast; may be null
  std::unique_ptr<IslandMessages> island_messages_;  ///< where there are islands
  cuda::DeviceMemory wire_scratch_;  ///< of steps (DeviceQuantized); where all is encoded on the way, none
  DeviceQuantized quantized_, across_quantized_;
  DeviceRegistrations registrations_;
  DeviceCopies copies_;
  std::mutex copies_mutex_;  ///< the attendant looks after what a registration may open
  DeviceReducers reducers_;
  cuda::MappedMemory seen_;  ///< CallOrder::Setup
  std::unique_ptr<CallOrder> order_;
  /// By which other threads ask order_: recorders dump before kernels are told to end, for which drivers may wait.
  std::unique_ptr<InTime> questions_ =
      std::make_unique<InTime>([device = request_.device] { cuda::begin_own_thread(device); });
  StartedCalls started_;
  /// Of the call that is being enqueued: what its first launch is to mark; then, or where none does, 0.
  std::uint32_t mark_ = 0;
  std::uint32_t launches_ = 0;               ///< likewise: made so far
  bool overlaps_launches_ = false;           ///< kernels may be launched while the one before still runs
  std::uint32_t most_clustered_blocks_ = 0;  ///< kernels::cluster_of()
  std::jthread attendant_;                   ///< last: it uses the rest
};

}  // namespace strait
