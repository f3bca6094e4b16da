// GPU ranks of one host, over memory that peers reach directly (NVLink, PCIe P2P) or over pinned host memory.
#include "communicator/device_rank.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "base/stages.hpp"
#include "communicator/call_order.hpp"
#include "communicator/device_arenas.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/device_copies.hpp"
#include "communicator/device_islands.hpp"
#include "communicator/device_mailbox.hpp"
#include "communicator/device_quantized.hpp"
#include "communicator/device_reducers.hpp"
#include "communicator/device_registrations.hpp"
#include "executor/copy_engine/cuda_stream_driver.hpp"
#include "executor/cuda/runtime.hpp"
#include "kernels/kernels.hpp"
#include "kernels/wire_format.hpp"

namespace strait {
namespace {

using cuda::check;
using cuda::DeviceGuard;

constexpr std::int64_t slow_ms = DeviceRank::slow_wait.count();
constexpr auto look_every = std::chrono::milliseconds(5);
constexpr int looks_between_examinations = 10;

class CudaRank final : public DeviceRank {
 public:
  explicit CudaRank(const Request& request) : request_(request) {}
  ~CudaRank() override;
  Status prepare();

  int device() const override { return request_.device; }
  const char* transport_name() const override { return arenas_.transport_name(); }
  const std::string& transport_why() const override { return arenas_.why_staged(); }
  Status enqueue(const Call& call) override;
  Status enqueue_messages(std::span<const Call> calls) override;
  Result<bool> is_capturing(void* stream) const override;
  std::optional<bool> is_idle() const override { return order_->is_idle(); }
  Status prepare_call(const Call& call) override;
  Status register_memory(std::uint64_t number, void* pointer, std::size_t bytes) override;
  Status deregister_memory(std::uint64_t number) override;

 private:
  using Tail = CallOrder::Tail;
  Status open_order();
  Status load_kernels() const;
  DeviceCalls calls_over(kernels::Ring ring) const;
  Status open_copies();
  Status open_wire_formats();
  Result<Tail> carry_out(const Call& call);
  Result<Tail> enqueue_exact(const Call& call);
  /// `exchange`: what carries its exchanges of bytes out.
  template <class Exchange>
  Result<Tail> enqueue_encoded(const DeviceQuantized& quantized, const Call& call, Exchange&& exchange);
  Result<Tail> enqueue_in_islands(const Call& call);
  Result<Tail> enqueue_to_reducers(const Call& call);
  Result<Tail> enqueue_over(const DeviceCalls& calls, const Call& call);
  Result<Tail> launch_all(std::vector<DeviceLaunch> launches, const Call& call);
  Status launch(DeviceLaunch& what, const Call& call);
  Status launch(const WireLaunch& what, void* stream);
  void look_after(const std::stop_token& stop);

  Request request_;
  cuda::MappedMemory mailbox_;
  DeviceArenas arenas_;
  cuda::DeviceMemory barrier_tokens_;
  kernels::Ring ring_{};
  DeviceCalls calls_;
  DeviceIslands islands_;
  DeviceCalls island_calls_, across_calls_;
  cuda::DeviceMemory wire_scratch_;  ///< from the first need of it on
  DeviceQuantized quantized_, across_quantized_;
  DeviceRegistrations registrations_;
  DeviceCopies copies_;
  std::mutex copies_mutex_;  ///< the attendant looks after what a registration may open
  DeviceReducers reducers_;
  cuda::DeviceMemory finished_;  ///< CallOrder::Setup
  cuda::MappedMemory seen_;      ///< likewise
  std::unique_ptr<CallOrder> order_;
  bool overlaps_launches_ = false;  ///< kernels may be launched while the one before still runs
  std::jthread attendant_;          ///< last: it uses the rest
};

Status CudaRank::prepare() {
  if (request_.ranks > kernels::max_ranks)
    return fail(Code::unsupported, std::to_string(request_.ranks) + " GPU ranks; this version joins at most " +
                                       std::to_string(kernels::max_ranks));
  int devices = 0;
  STRAIT_TRY(check(cudaGetDeviceCount(&devices), "no GPU can be used"));
  if (request_.device >= devices)
    return fail(Code::invalid_argument, "device " + std::to_string(request_.device) +
                                            " was asked for, and this process sees " + std::to_string(devices));
  DeviceGuard guard(request_.device);
  Stages stages;
  STRAIT_TRY(check(cudaFree(nullptr), "GPU " + std::to_string(request_.device) + " cannot be used"));
  stages.done("context");
  STRAIT_ASSIGN(mailbox_, cuda::MappedMemory::allocate(sizeof(kernels::Mailbox)));
  stages.done("mailbox");
  STRAIT_ASSIGN(arenas_, DeviceArenas::open(request_, static_cast<kernels::Mailbox*>(mailbox_.data())));
  stages.done("arenas");
  STRAIT_ASSIGN(barrier_tokens_, cuda::DeviceMemory::allocate(request_.device, 2 * 8 * kernels::max_ranks));
  STRAIT_TRY(open_order());
  STRAIT_TRY(load_kernels());
  stages.done("kernels");
  int capability = 0;
  STRAIT_TRY(check(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, request_.device),
                   "cannot ask a GPU for its compute capability"));
  overlaps_launches_ = capability >= 9;
  ring_ = arenas_.ring();
  calls_ = calls_over(ring_);
  if (!arenas_.islands().empty()) {
    islands_ =
        DeviceIslands(request_.rank, arenas_.islands(), arenas_.island_scratch(), DeviceArenas::island_scratch_bytes);
    island_calls_ = calls_over(arenas_.island_ring());
    across_calls_ = calls_over(arenas_.across_ring());
  }
  STRAIT_TRY(request_.agree(open_copies(), "use its copy engines"));
  auto reducers = DeviceReducers::open(request_, arenas_, calls_over(arenas_.reducers_ring()));
  STRAIT_TRY(request_.agree(reducers.map([](const DeviceReducers&) {}), "start its CPU reducers"));
  reducers_ = std::move(*reducers);
  if (request_.wire != WireFormat::off && request_.ranks > 1)
    STRAIT_TRY(request_.agree(open_wire_formats(), "prepare its wire format"));
  stages.done("copy engines and wire formats");
  log_trace(static_cast<int>(request_.rank), "set-up of the GPU: " + stages.text());
  attendant_ = std::jthread([this](const std::stop_token& stop) { look_after(stop); });
  return {};
}

DeviceCalls CudaRank::calls_over(kernels::Ring ring) const {
  ring.slow_ns = slow_ms * 1'000'000;
  ring.timeout_ns = static_cast<std::uint64_t>(request_.timeout_ms) * 1'000'000;
  const bool by_nvlink = kernels::kind_of(ring) == kernels::ArenaKind::nvlink;
  return {ring,
          barrier_tokens_.data(),
          {request_.max_sms, by_nvlink ? request_.lines_bytes : request_.packets_bytes, request_.algorithm,
           request_.piped_bytes, arenas_.exchange_rates().gbps, arenas_.most_blocks()}};
}

Status CudaRank::open_order() {
  STRAIT_ASSIGN(finished_, cuda::DeviceMemory::allocate(request_.device, sizeof(std::uint32_t)));
  STRAIT_ASSIGN(seen_, cuda::MappedMemory::allocate(sizeof(std::uint32_t)));
  CallOrder::Setup setup;
  STRAIT_ASSIGN(setup.driver, staged::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(setup.reader, staged::open_cuda_streams(request_.device));
  setup.finished = reinterpret_cast<std::uint32_t*>(finished_.data());
  setup.seen = static_cast<std::uint32_t*>(seen_.data());
  STRAIT_ASSIGN(order_, CallOrder::open(std::move(setup)));
  return {};
}

Status CudaRank::load_kernels() const {
  std::vector<kernels::Wire> wires{kernels::flagged_wire(arenas_.ring()), kernels::Wire::bulk};
  if (!arenas_.islands().empty()) wires.push_back(kernels::flagged_wire(arenas_.island_ring()));
  for (const kernels::Wire wire : wires) STRAIT_TRY(cuda::load_kernels(kernels::all_kernels(wire)));
  if (!arenas_.ring().has_async_copies && !arenas_.island_ring().has_async_copies) return {};
  for (const kernels::PipedKernel& piped : kernels::all_piped_kernels())
    STRAIT_TRY(check(cudaFuncSetAttribute(piped.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(piped.memory_bytes)),
                     "cannot load a kernel"));
  return {};
}

Status CudaRank::open_copies() {
  const auto launch_add = [this](const void* kernel, const kernels::Add& add, std::uint32_t blocks, void* stream) {
    return cuda::launch_kernel(request_.device, kernel, &add, {blocks, kernels::max_threads, false}, stream);
  };
  STRAIT_ASSIGN(copies_, DeviceCopies::open(request_, arenas_, launch_add));
  return {};
}

/// Once.
Status CudaRank::open_wire_formats() {
  if (wire_scratch_.data() != nullptr) return {};
  DeviceGuard guard(request_.device);
  STRAIT_TRY(cuda::load_kernels(kernels::all_wire_kernels()));
  STRAIT_ASSIGN(wire_scratch_, cuda::DeviceMemory::allocate_uncleared(request_.device, DeviceQuantized::scratch_bytes));
  const auto among = [&](std::uint32_t rank, std::uint32_t ranks) {
    return DeviceQuantized(rank, ranks, request_.ranks, wire_scratch_.data(), DeviceQuantized::scratch_bytes,
                           request_.max_sms);
  };
  quantized_ = among(request_.rank, request_.ranks);
  const kernels::Ring& across = arenas_.across_ring();
  if (across.ranks > 1) across_quantized_ = among(across.rank, across.ranks);
  return {};
}

CudaRank::~CudaRank() {
  DeviceGuard guard(request_.device);
  // Kernels that still run end by themselves, or by the abort word that the attendant raises; and with them streams
  // that wait for them.
  if (order_ && order_->has_run()) cudaDeviceSynchronize();
  attendant_ = {};
  copies_ = {};
  reducers_ = {};
}

/// Goes between the kernels, which can only poll and write a word, and the rest of the library.
void CudaRank::look_after(const std::stop_token& stop) {
  const std::atomic_ref abort(ring_.mailbox->abort);
  for (int looks = 0; !stop.stop_requested(); ++looks) {
    if (abort == 0 && request_.watch->has_failed()) {
      abort = 1;
      (void)request_.watch->sticky();  // this rank has seen it, though its own thread may be elsewhere
      reducers_.abort();
    }
    tell_of_mailbox(*ring_.mailbox, request_, reducers_);
    {
      const std::lock_guard lock(copies_mutex_);
      copies_.look_after();
    }
    if (looks % looks_between_examinations == 0 && !request_.watch->has_failed()) (void)request_.watch->examine_peers();
    std::this_thread::sleep_for(look_every);
  }
}

Result<bool> CudaRank::is_capturing(void* stream) const {
  cudaStreamCaptureStatus status{};
  STRAIT_TRY(check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status), "the stream cannot be used"));
  return status != cudaStreamCaptureStatusNone;
}

Status CudaRank::launch(DeviceLaunch& what, const Call& call) {
  std::visit([&](auto& argument) { argument.ring.finished = order_->finished(); }, what.argument);
  const bool one_hop = std::holds_alternative<kernels::Exchange>(what.argument);
  const void* argument = std::visit([](const auto& each) { return static_cast<const void*>(&each); }, what.argument);
  cuda::LaunchShape shape{what.blocks, what.threads, overlaps_launches_};
  const void* kernel = nullptr;
  if (what.piped) {
    const kernels::PipedKernel piped =
        what.reduces ? kernels::piped_sum_kernel(one_hop, call.type) : kernels::piped_copy_kernel();
    kernel = piped.kernel;
    shape.memory_bytes = piped.memory_bytes;
  } else if (what.reduces) {
    kernel = one_hop ? kernels::exchange_reduce_kernel(what.wire, call.type, call.op)
                     : kernels::two_hop_reduce_kernel(what.wire, call.type, call.op);
  } else {
    kernel = one_hop ? kernels::exchange_copy_kernel(what.wire, what.apart) : kernels::two_hop_copy_kernel(what.wire);
  }
  STRAIT_TRY(cuda::launch_kernel(request_.device, kernel, argument, shape, call.stream));
  order_->launched(what.blocks);
  return {};
}

Result<CallOrder::Tail> CudaRank::launch_all(std::vector<DeviceLaunch> launches, const Call& call) {
  for (DeviceLaunch& each : launches) STRAIT_TRY(launch(each, call));
  return launches.empty() ? Tail::other : Tail::counted_launch;
}

/// These take whole GPUs. Begun early they would keep the kernels of other communicators from running while they wait
/// for an exchange, which may wait for just those.
Status CudaRank::launch(const WireLaunch& what, void* stream) {
  return cuda::launch_kernel(request_.device, kernels::wire_kernel(what.kernel, what.format, what.type), &what.pass,
                             {what.blocks, kernels::wire_threads, false}, stream);
}

Status CudaRank::prepare_call(const Call& call) {
  if (!is_encoded(call, request_.ranks) || wire_scratch_.data() != nullptr) return {};
  STRAIT_ASSIGN(const bool captures, is_capturing(call.stream));
  if (!captures) return open_wire_formats();
  return fail(Code::invalid_usage,
              std::string(name(call.collective)) +
                  ": the first call in a wire format allocates memory, which a graph cannot capture. Ask for the "
                  "format when the communicator is made (`wire` in the configuration, or STRAIT_WIRE), or make such a "
                  "call before the capture");
}

Status CudaRank::register_memory(std::uint64_t number, void* pointer, std::size_t bytes) {
  if (arenas_.is_staged() || request_.ranks < 2) return {};
  DeviceGuard guard(request_.device);
  STRAIT_TRY(check(cudaFree(nullptr), "GPU " + std::to_string(request_.device) + " cannot be used"));  // by this thread
  STRAIT_TRY(registrations_.add(request_, number, pointer, bytes));
  const std::lock_guard lock(copies_mutex_);
  Status ready = copies_.open_in_place(arenas_);
  if (!ready) registrations_.remove(number);
  return ready;
}

Status CudaRank::deregister_memory(std::uint64_t number) {
  if (!registrations_.has(number)) return {};
  DeviceGuard guard(request_.device);
  STRAIT_TRY(check(cudaDeviceSynchronize(), "calls on registered memory did not end well"));
  registrations_.remove(number);
  return {};
}

Status CudaRank::enqueue(const Call& call) {
  // Also a call that has nothing to do comes after the last one, and before the next.
  STRAIT_TRY(order_->begin(call.stream));
  STRAIT_ASSIGN(const Tail tail, carry_out(call));
  return order_->end(call.stream, tail);
}

Result<CallOrder::Tail> CudaRank::carry_out(const Call& call) {
  if (islands_.carries(call)) return enqueue_in_islands(call);
  if (!is_encoded(call, request_.ranks)) return enqueue_exact(call);
  return enqueue_encoded(quantized_, call, [this](const Call& exchange) { return carry_out(exchange); });
}

template <class Exchange>
Result<CallOrder::Tail> CudaRank::enqueue_encoded(const DeviceQuantized& quantized, const Call& call,
                                                  Exchange&& exchange) {
  for (const QuantizedStep& step : quantized.steps_of(call)) {
    if (const auto* bytes = std::get_if<Call>(&step))
      STRAIT_TRY(exchange(*bytes));
    else
      STRAIT_TRY(launch(std::get<WireLaunch>(step), call.stream));
  }
  return Tail::other;
}

Result<CallOrder::Tail> CudaRank::enqueue_exact(const Call& call) {
  if (copies_.carries_in_place(call)) {
    const std::size_t bytes = buffer_sizes(call, request_.rank, request_.ranks).receive_bytes;
    STRAIT_ASSIGN(const auto place, registrations_.find(call.receive, bytes));
    if (place) return copies_.enqueue_in_place(call, *place).map([] { return Tail::other; });
  }
  if (reducers_.carries(call)) return enqueue_to_reducers(call);
  if (copies_.carries(call)) {
    STRAIT_ASSIGN(const bool captures, is_capturing(call.stream));
    if (!captures || copies_.can_be_captured()) return copies_.enqueue(call).map([] { return Tail::other; });
  }
  return enqueue_over(calls_, call);
}

Result<CallOrder::Tail> CudaRank::enqueue_in_islands(const Call& call) {
  const auto across = [this](const Call& part) -> Result<Tail> {
    if (part.wire == WireFormat::off)
      return reducers_.carries(part) ? enqueue_to_reducers(part) : enqueue_over(across_calls_, part);
    return enqueue_encoded(across_quantized_, part,
                           [this](const Call& exchange) { return enqueue_over(across_calls_, exchange); });
  };
  Tail tail = Tail::other;
  for (const auto& [among, part] : islands_.steps_of(call)) {
    const DeviceCalls& calls = among == IslandStep::Among::island ? island_calls_ : calls_;
    STRAIT_ASSIGN(tail, among == IslandStep::Among::across ? across(part) : enqueue_over(calls, part));
  }
  return tail;
}

Result<CallOrder::Tail> CudaRank::enqueue_to_reducers(const Call& call) {
  STRAIT_ASSIGN(const bool captures, is_capturing(call.stream));
  DeviceGuard guard(request_.device);
  STRAIT_ASSIGN(DeviceLaunch launch, reducers_.take(call, captures));
  return launch_all({std::move(launch)}, call);
}

Result<CallOrder::Tail> CudaRank::enqueue_over(const DeviceCalls& calls, const Call& call) {
  STRAIT_ASSIGN(const Tail tail, launch_all(calls.launches_of(call), call));
  if (!calls.leaves_own(call) || call.count == 0) return tail;
  STRAIT_TRY(check(cudaMemcpyAsync(call.receive, call.send, call.count * size_bytes(call.type),
                                   cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(call.stream)),
                   "cannot copy the root's own part of a broadcast"));
  return Tail::other;
}

Status CudaRank::enqueue_messages(std::span<const Call> calls) {
  void* const stream = calls.front().stream;
  // All run on the first call's stream: between what the other streams did before and what they do next.
  for (const Call& call : calls)
    if (call.stream != stream) STRAIT_TRY(order_->order(call.stream, stream));
  STRAIT_TRY(order_->begin(stream));
  STRAIT_ASSIGN(const Tail tail, launch_all(calls_.launches_of(calls), calls.front()));
  for (const Call& call : calls)
    if (call.stream != stream) STRAIT_TRY(order_->order(stream, call.stream));
  return order_->end(stream, tail);
}

}  // namespace

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(const Request& request) {
  auto rank = std::make_unique<CudaRank>(request);
  STRAIT_TRY(rank->prepare());
  return rank;
}

}  // namespace strait
