// Replaces the files that define DeviceRank::open and other functions that query GPUs, in builds with and without CUDA.
#include "fake_device_rank.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "device/device_links.hpp"
#include "device/device_rank.hpp"
#include "device/memory/device_memory.hpp"
#include "device/staging_account.hpp"
#include "device/staging_budget.hpp"
#include "device/started_calls.hpp"
#include "select/measured_rate.hpp"

namespace strait {
namespace {

class FakeDeviceRank final : public DeviceRank {
 public:
  explicit FakeDeviceRank(Request request, const ExchangeRates& rates, StagingShare staging = {})
      : request_(std::move(request)), rates_(rates), staging_(std::move(staging)) {
    if (!testing::fake_gpu.has_attendants) return;
    attendant_ = std::jthread([this](const std::stop_token& stop) {
      kernels::Mailbox& mailbox = testing::fake_gpu.mailboxes[request_.rank];
      for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
        if (request_.watch->has_failed()) std::atomic_ref(mailbox.abort) = 1;
        started_.poll(
            mailbox, *request_.watch, [this] { return read_counts(); }, [](std::uint32_t rank) { return rank; });
        if (request_.watch->has_failed()) continue;
        if (request_.watch->examine_peers()) (void)StartedCalls::compare(*request_.watch);
      }
    });
  }
  const char* transport_name() const override { return "fake"; }
  const std::string& transport_why() const override { return why_; }
  const ExchangeRates& exchange_rates() const override { return rates_; }
  std::size_t wire_pays_bytes() const override { return testing::fake_gpu.wire_pays_bytes; }
  Status prepare_call(const Call& /*call*/) override { return {}; }
  Status enqueue(const Call& call) override {
    if (testing::fake_gpu.logs)
      testing::fake_gpu.log.push_back(std::to_string(request_.rank) + ": " + std::string(name(call.collective)) +
                                      (call.wire == WireFormat::off ? "" : " in " + std::string(name(call.wire))));
    ++testing::fake_gpu.launches;
    started_.note_call({.signature = signature(call), .is_captured = capture_of(call.stream).value() != 0});
    if (testing::fake_gpu.looks_at_peers) STRAIT_TRY(request_.watch->examine_peers());
    if (!testing::fake_gpu.launch_error.empty()) return fail(Code::cuda_error, testing::fake_gpu.launch_error);
    return {};
  }
  std::size_t aggregated_calls(std::span<const Call> group) const override {
    return std::clamp<std::size_t>(testing::fake_gpu.aggregates, 1, group.size());
  }
  Status enqueue_aggregate(std::span<const Call> calls) override {
    if (testing::fake_gpu.logs)
      testing::fake_gpu.log.push_back(std::to_string(request_.rank) + ": aggregate of " + std::to_string(calls.size()));
    for (const Call& call : calls) STRAIT_TRY(enqueue(call));
    return {};
  }
  Status enqueue_messages(std::span<const Call> calls) override { return enqueue(calls.front()); }
  Status order_streams(void* first, void* then) override {
    const auto number = [](void* stream) { return std::to_string(reinterpret_cast<std::uintptr_t>(stream)); };
    if (testing::fake_gpu.logs)
      testing::fake_gpu.log.push_back(std::to_string(request_.rank) + ": stream " + number(then) + " waits for " +
                                      number(first));
    for (void* const stream : {first, then}) STRAIT_TRY(capture_of(stream).map([](std::uint64_t) {}));
    if (!testing::fake_gpu.launch_error.empty()) return fail(Code::cuda_error, testing::fake_gpu.launch_error);
    return {};
  }
  void raise_pending_failures() const override {
    auto& mailboxes = testing::fake_gpu.mailboxes;
    if (request_.rank < mailboxes.size() && std::atomic_ref(mailboxes[request_.rank].timed_out) != 0)
      request_.watch->raise({Code::timeout, "a kernel has waited longer than its deadline"});
  }
  std::optional<bool> is_idle() const override {
    const int idle = testing::fake_gpu.idle;
    return idle < 0 ? std::nullopt : std::optional(idle == 1);
  }
  std::optional<DeviceProgress> progress() override { return std::nullopt; }
  Result<std::uint64_t> capture_of(void* stream) override {
    const auto number = reinterpret_cast<std::uintptr_t>(stream);
    if (number != 0 && number == testing::fake_gpu.bad_stream)
      return fail(testing::fake_gpu.bad_because, "the stream cannot be used");
    if (number != 0 && number == testing::fake_gpu.capturing_stream) return 1;
    if (number != 0 && number == testing::fake_gpu.other_capturing_stream) return 2;
    return testing::fake_gpu.captures || testing::fake_gpu.capturing_rank == static_cast<int>(request_.rank) ? 1 : 0;
  }
  Status register_memory(std::uint64_t number, void* /*pointer*/, std::size_t /*bytes*/) override {
    const bool refuses = testing::fake_gpu.refusing_rank == static_cast<int>(request_.rank);
    STRAIT_TRY(request_.agree(refuses ? fail(Code::invalid_argument, "it is not shared") : Status(), "register"));
    if (testing::fake_gpu.rank_without_memory == static_cast<int>(request_.rank)) throw std::bad_alloc();
    ++testing::fake_gpu.registrations;
    testing::fake_gpu.registered[request_.rank] = number;
    return {};
  }
  Status deregister_memory(std::uint64_t /*number*/) override {
    --testing::fake_gpu.registrations;
    return {};
  }
  void drop_unused_registration(std::uint64_t /*number*/) override { --testing::fake_gpu.registrations; }
  Status await_work() override {
    while (testing::fake_gpu.idle == 0 && !request_.watch->has_failed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  }

 private:
  std::optional<kernels::LaunchCounts> read_counts() const {
    ++testing::fake_gpu.reads[request_.rank];
    kernels::LaunchCounts& there = testing::fake_gpu.counts[request_.rank];
    kernels::LaunchCounts counts{};
    for (std::uint32_t i = 0; i < kernels::kept_marks; ++i)
      counts.started.calls[i] = std::atomic_ref(there.started.calls[i]).load();
    counts.started.messages = std::atomic_ref(there.started.messages).load();
    return counts;
  }

  Request request_;
  ExchangeRates rates_;
  StagingShare staging_;
  std::string why_;
  StartedCalls started_;
  std::jthread attendant_;
};

}  // namespace

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(const Request& request) {
  ++testing::fake_gpu.opening;
  while (testing::fake_gpu.late_rank == static_cast<int>(request.rank))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (testing::fake_gpu.agrees) STRAIT_TRY(request.agree({}, "use its GPU"));
  ExchangeRates rates;
  if (testing::fake_gpu.asks_for_rates) {
    STRAIT_ASSIGN(rates, request.exchange_rates(true));
  }
  if (testing::fake_gpu.copy && !rates.is_fixed_by_user) {
    const auto copy = [&](std::size_t bytes) { return testing::fake_gpu.copy(request, bytes); };
    STRAIT_ASSIGN(const MeasuredExchange measured, measure_exchange(copy, request.gather));
    STRAIT_TRY(request.goes_on());  // as in the real one, where copies that do not end are an error
    rates = with_measured(rates, measured.gbps);
  }
  if (testing::fake_gpu.on_open) STRAIT_TRY(testing::fake_gpu.on_open(request));
  StagingShare staging;
  if (testing::fake_gpu.stages) {
    STRAIT_ASSIGN(staging, agree_on_staging(request, false, false));
    testing::fake_gpu.staged_for[request.rank] = staging.bytes;
    settle_staging(request, staging, StagingBudget::of(staging.bytes, false, false).total_bytes());
  }
  return std::make_unique<FakeDeviceRank>(request, rates, std::move(staging));
}
ExchangeRates exchange_rates_of_gpus(const std::vector<std::string>& bus_ids, bool through_host) {
  return {++testing::fake_gpu.looks + (through_host ? 0.5 : 0), static_cast<double>(bus_ids.size())};
}
Result<void*> allocate_device_memory(int /*device*/, std::size_t /*bytes*/) {
  return fail(Code::unsupported, "no GPU");
}
bool free_device_memory(void* /*pointer*/) { return false; }
Result<std::unique_ptr<DeviceRank>> open_hosts_rank(HostsRequest request) {
  if (testing::fake_gpu.on_open_hosts) STRAIT_TRY(testing::fake_gpu.on_open_hosts(request));
  return fail(Code::unsupported, "there are no several hosts in these tests");
}
Status check_devices_supported(int /*device*/) { return {}; }
Result<std::string> device_bus_id(int device) { return "0000:4" + std::to_string(device) + ":00.0"; }

}  // namespace strait
