#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/time_limited_questions.hpp"
#include "device/call_order.hpp"
#include "device/device_arenas.hpp"
#include "device/device_copies.hpp"
#include "device/device_rank.hpp"
#include "device/device_reducers.hpp"
#include "device/device_registrations.hpp"
#include "device/island_messages.hpp"
#include "device/launch_order.hpp"
#include "device/memory/host_memory.hpp"
#include "device/side_streams.hpp"
#include "device/started_calls.hpp"
#include "executor/cuda/launcher.hpp"
#include "executor/cuda/runtime.hpp"
#include "launches/device_aggregates.hpp"
#include "launches/device_calls.hpp"
#include "launches/device_islands.hpp"
#include "launches/device_quantized.hpp"

namespace strait {

/// A GPU rank whose peers are all on one host. Data travels through memory that peers' GPUs access directly (NVLink,
/// PCIe P2P) or through pinned host memory. Set-up, monitoring and teardown are in cuda_rank.cpp, what is enqueued on
/// streams in cuda_rank_enqueue.cpp.
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
  void raise_pending_failures() const override;
  std::optional<bool> is_idle() const override;
  std::optional<DeviceProgress> progress() override;
  Status prepare_call(const Call& call) override;
  Status register_memory(std::uint64_t number, void* pointer, std::size_t bytes) override;
  Status deregister_memory(std::uint64_t number) override;
  void drop_unused_registration(std::uint64_t number) override;
  Status await_work() override;

 private:
  using Tail = CallOrder::Tail;
  Status open_order();
  Status load_kernels();
  /// Returns the planner of launches over `ring`. `most_blocks`: see DeviceCalls::Options.
  DeviceCalls calls_over(kernels::Ring ring, std::uint32_t most_blocks) const;
  Status open_islands();
  Status open_copies();
  Status open_wire_formats();
  /// Returns whether the kernels that exchange data among the ranks of `calls` also encode and decode `call`, which has
  /// a wire format. Not if copy engines are wanted: they carry only bytes that are encoded already.
  bool encodes_on_the_way(const DeviceCalls& calls, const Call& call) const {
    return !DeviceCopies::are_wanted(request_, arenas_.is_staged()) && calls.pays_to_encode(call);
  }
  void begin_marking(const Call& call);
  void end_marking(const Call& call, Tail tail);
  Status end(const Call& call, const Result<Tail>& tail);
  bool goes_by_islands(const Call& call) const;
  bool may_go_straight(const Call& call) const;
  Result<std::optional<DeviceRegistrations::Place>> place_of_output(const Call& call) const;
  /// Returns callbacks by which receivers of messages offer registered buffers. If a buffer's memory was freed after
  /// its registration, that error is stored in `offered`, which must outlive the callbacks.
  MessageOffers offers_into(Status& offered) const;
  void keep_for_graphs(std::span<const DeviceLaunch> launches);
  Result<Tail> carry_out(const Call& call);
  Result<Tail> enqueue_exact(const Call& call);
  /// Enqueues `steps`: launches the kernels that encode, add and decode, and calls `exchange` for each exchange of
  /// encoded bytes between them.
  template <class Exchange>
  Result<Tail> enqueue_encoded(const std::vector<QuantizedStep>& steps, void* stream, Exchange&& exchange);
  Result<Tail> enqueue_in_islands(const Call& call);
  /// Enqueues an all-reduce that CPU threads add up. `quantized` splits calls in a wire format into steps; it is the
  /// one of the ranks whose contributions meet in host memory.
  Result<Tail> enqueue_to_reducers(const DeviceQuantized& quantized, const Call& call);
  Result<Tail> enqueue_over(const DeviceCalls& calls, const Call& call);
  /// Enqueues the sends and receives of one group on the stream of the first.
  Result<Tail> carry_messages(std::span<const Call> calls);
  Result<Tail> launch_all(std::vector<DeviceLaunch> launches, const Call& call);
  Status launch(DeviceLaunch& what, const Call& call, LaunchOrder::Line line = LaunchOrder::Line::main);
  Status launch(AggregateLaunch& what);
  /// Launches a kernel that waits for other ranks, after those of other communicators that the host has launched on
  /// this GPU, if these may take its place.
  Status launch_in_order(LaunchOrder::Line line, const void* kernel, const void* argument, cuda::LaunchShape shape,
                         void* stream);
  Status launch(const WireLaunch& what, void* stream);
  bool has_own_work_ended() {
    return order_->await_idle([watch = request_.watch] { return watch->has_failed(); });
  }
  void raise_if_gpu_failed() const;
  Status error_of_gpu(const std::string& what) const;
  Status check_gpu() const;
  void run_attendant(const std::stop_token& stop);
  std::optional<kernels::LaunchCounts> read_counts() const;

  /// Set by the destructor. First, so that it lasts while the other members are destroyed.
  std::optional<cuda::RelaxedDeviceScope> ending_;
  Request request_;
  /// Held while kernels may run, so that no host memory is unpinned meanwhile.
  std::shared_ptr<const void> keeps_pinned_ = HostMemory::keep_pinned();
  std::optional<cuda::Launcher> launcher_;  ///< set by prepare()
  std::unique_ptr<LaunchOrder> starts_;     ///< null: launches are not ordered beside those of other communicators
  cuda::MappedMemory mailbox_;
  DeviceArenas arenas_;
  kernels::Ring ring_{};
  DeviceCalls calls_;
  DeviceIslands islands_;
  DeviceCalls island_calls_, across_calls_;
  std::unique_ptr<SideStreams> side_;  ///< for the copy of the root's own part in a long broadcast; may be null
  std::unique_ptr<IslandMessages> island_messages_;  ///< null without islands
  cuda::DeviceMemory wire_scratch_;                  ///< for the steps of DeviceQuantized
  DeviceQuantized quantized_, across_quantized_;
  DeviceRegistrations registrations_;
  DeviceCopies copies_;
  std::mutex copies_mutex_;  ///< for copies_: the attendant thread uses it, and a registration may open it
  DeviceReducers reducers_;
  cuda::MappedMemory seen_;  ///< CallOrder::Setup::seen
  std::unique_ptr<CallOrder> order_;
  /// Asks order_ questions for other threads, with a time limit: the driver may hold a question up until running
  /// kernels end, and flight recorders dump before kernels are told to end.
  std::unique_ptr<TimeLimitedQuestions> questions_ =
      std::make_unique<TimeLimitedQuestions>([device = request_.device] { cuda::begin_own_thread(device); });
  StartedCalls started_;
  /// The mark that the first launch of the call being enqueued writes (kernels::Ring::call). 0 after that launch, and
  /// for calls of which no launch writes one.
  std::uint32_t mark_ = 0;
  std::uint32_t launches_ = 0;               ///< launches made so far for the call being enqueued
  bool overlaps_launches_ = false;           ///< a kernel may begin while the one before it still runs
  std::uint32_t most_clustered_blocks_ = 0;  ///< blocks in clusters that run at once (kernels::cluster_of())
  std::jthread attendant_;                   ///< last, so that it ends before the members that it uses
};

}  // namespace strait
