// Set-up, monitoring and teardown of GPU ranks.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>

#include "base/log.hpp"
#include "base/shortage.hpp"
#include "base/stages.hpp"
#include "device/cuda_rank.hpp"
#include "device/device_mailbox.hpp"
#include "executor/copy_engine/cuda_stream_driver.hpp"
#include "kernels/kernels.hpp"
#include "kernels/piped.hpp"
#include "kernels/wire_format.hpp"

namespace strait {

using cuda::check;
using cuda::DeviceGuard;

namespace {

constexpr std::int64_t slow_ms = Watch::slow_wait.count();
constexpr auto poll_interval = std::chrono::milliseconds(5);
constexpr int looks_between_examinations = 10;
constexpr auto longest_question = std::chrono::milliseconds(100);

/// Starts a thread that goes on releasing what copies wait for, until all work has ended, after a communicator was
/// destroyed before that. Kernels that begin late see the abort word and end. But what a stream waits for between
/// copies can only be released once the stream has come to it. `copies` and `order` must outlive the thread.
void go_on_releasing(const DeviceRank::Request& request, DeviceCopies& copies, CallOrder& order) {
  constexpr int looks_between_questions = 200;
  try {
    std::thread([&copies, &order, device = request.device] {
      cuda::begin_own_thread(device);
      const cuda::RelaxedCapture relaxed;
      for (int looks = 1;; ++looks) {
        copies.release_waits();
        std::this_thread::sleep_for(poll_interval);
        if (looks % looks_between_questions != 0) continue;
        const std::optional<bool> idle = order.is_idle();
        if (idle == true || (!idle && order.device_has_failed())) return;
      }
    }).detach();
  } catch (const std::system_error& error) {
    const Error lacking =
        cannot_start_thread(error, "that ends the copies of an aborted communicator, whose streams may wait for ever")
            .value();
    log_warn(static_cast<int>(request.rank), lacking.message);
  }
}

}  // namespace

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
  const cuda::RelaxedCapture relaxed;  // another thread may be capturing
  Stages stages;
  STRAIT_TRY(check(cudaFree(nullptr), "GPU " + std::to_string(request_.device) + " cannot be used"));
  stages.done("context");
  STRAIT_ASSIGN(mailbox_, cuda::MappedMemory::allocate(sizeof(kernels::Mailbox)));
  stages.done("mailbox");
  STRAIT_ASSIGN(arenas_, DeviceArenas::open(request_, static_cast<kernels::Mailbox*>(mailbox_.data())));
  stages.done("arenas");
  STRAIT_TRY(open_order());
  STRAIT_ASSIGN(launcher_, cuda::Launcher::open(request_.device));
  STRAIT_TRY(load_kernels());
  stages.done("kernels");
  STRAIT_ASSIGN(const int compiled, cuda::compiled_for(kernels::two_hop_copy_kernel(kernels::Protocol::bulk)));
  overlaps_launches_ = compiled >= kernels::least_overlapping_capability;
  ring_ = arenas_.ring();
  calls_ = calls_over(ring_, arenas_.most_blocks());
  if (!arenas_.islands().empty()) STRAIT_TRY(request_.agree(open_islands(), "use its island"));
  STRAIT_TRY(request_.agree(open_copies(), "use its copy engines"));
  auto reducers = DeviceReducers::open(request_, arenas_, calls_over(arenas_.reducers_ring(), arenas_.most_blocks()));
  STRAIT_TRY(request_.agree(reducers.map([](const DeviceReducers&) {}), "start its CPU reducers"));
  reducers_ = std::move(*reducers);
  if (request_.wire != WireFormat::off && request_.ranks > 1)
    STRAIT_TRY(request_.agree(open_wire_formats(), "prepare its wire format"));
  stages.done("copy engines and wire formats");
  log_trace(static_cast<int>(request_.rank), "set-up of the GPU: " + stages.text());
  (void)read_counts();  // the first read needs something of CUDA that it might not get while kernels wait
  attendant_ = std::jthread([this](const std::stop_token& stop) { run_attendant(stop); });
  return {};
}

Status CudaRank::open_islands() {
  const std::vector<Island>& islands = arenas_.islands();
  islands_ = DeviceIslands(request_.rank, islands, arenas_.island_scratch(), DeviceIslands::scratch_bytes);
  island_calls_ = calls_over(arenas_.island_ring(), arenas_.most_blocks());
  across_calls_ = calls_over(arenas_.across_ring(), arenas_.most_blocks());
  STRAIT_ASSIGN(auto driver, copy_engine::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(auto side, SideStreams::open(std::move(driver)));
  kernels::Ring island_ring = arenas_.island_ring();
  // No pipes, in which messages to several peers advance in step (DeviceCalls::Turn).
  island_ring.has_async_copies = false;
  island_messages_ = std::make_unique<IslandMessages>(
      IslandMessages::Setup{.island = islands[place_of(islands, request_.rank).island],
                            .rank = request_.rank,
                            .inside = calls_over(island_ring, arenas_.most_message_blocks()),
                            .others = calls_over(ring_, arenas_.most_message_blocks()),
                            .side = std::move(side)});
  return {};
}

DeviceCalls CudaRank::calls_over(kernels::Ring ring, std::uint32_t most_blocks) const {
  ring.slow_ns = slow_ms * 1'000'000;
  ring.timeout_ns = static_cast<std::uint64_t>(request_.timeout_ms) * 1'000'000;
  const bool by_nvlink = kernels::kind_of(ring) == kernels::ArenaKind::nvlink;
  return {ring,
          arenas_.barrier_tokens(),
          {.max_sms = request_.options.max_sms,
           .flagged_bytes = by_nvlink ? request_.options.lines_bytes : request_.options.packets_bytes,
           .hops = request_.hops,
           .piped_unit_bytes = request_.options.piped_unit_bytes,
           .exchange_gbps = arenas_.exchange_rates().gbps,
           .most_blocks = most_blocks,
           .sms = arenas_.least_sms()}};
}

Status CudaRank::open_order() {
  // side_ is of no use to two ranks. And if ranks of one process share a GPU, streams that wait for one of these ranks
  // could, in a shared hardware queue, hold up what it waits for on another stream.
  if (request_.ranks > 2 && !request_.threads_share_a_gpu) {
    STRAIT_ASSIGN(auto beside, copy_engine::open_cuda_streams(request_.device));
    STRAIT_ASSIGN(side_, SideStreams::open(std::move(beside)));
  }
  STRAIT_ASSIGN(seen_, cuda::MappedMemory::allocate(sizeof(kernels::LaunchCounts)));
  CallOrder::Setup setup;
  STRAIT_ASSIGN(setup.driver, copy_engine::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(setup.reader, copy_engine::open_cuda_streams(request_.device));
  setup.counts = arenas_.launch_counts();
  setup.seen = static_cast<kernels::LaunchCounts*>(seen_.data());
  setup.joins_graphs = request_.options.joins_graphs;
  STRAIT_ASSIGN(order_, CallOrder::open(std::move(setup)));
  // Ranks that share a GPU as threads are no communicators side by side, and their order is not the same everywhere.
  if (!request_.options.orders_launches || request_.ranks == 1 || request_.threads_share_a_gpu) return {};
  STRAIT_ASSIGN(auto starts, copy_engine::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(starts_, LaunchOrder::join(request_.device, arenas_.least_sms(), std::move(starts)));
  return {};
}

Status CudaRank::load_kernels() {
  std::vector<kernels::Protocol> protocols{kernels::flagged_protocol(arenas_.ring()), kernels::Protocol::bulk};
  if (!arenas_.islands().empty()) protocols.push_back(kernels::flagged_protocol(arenas_.island_ring()));
  for (const kernels::Protocol protocol : protocols) STRAIT_TRY(cuda::load_kernels(kernels::all_kernels(protocol)));
  if (!arenas_.ring().has_async_copies && !arenas_.island_ring().has_async_copies) return {};
  for (const kernels::PipedKernel& piped : kernels::all_piped_kernels())
    STRAIT_TRY(check(cudaFuncSetAttribute(piped.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(piped.memory_bytes)),
                     "cannot load a kernel"));
  // A block of any of these kernels takes all shared memory of its SM, so the answer for one holds for all.
  const kernels::PipedKernel piped = kernels::piped_copy_kernel(true);
  STRAIT_ASSIGN(most_clustered_blocks_,
                launcher_->most_blocks_at_once(piped.kernel, {.blocks = kernels::piped_cluster,
                                                              .threads = kernels::piped_threads,
                                                              .overlaps = false,
                                                              .memory_bytes = piped.memory_bytes,
                                                              .cluster_blocks = kernels::piped_cluster}));
  return {};
}

Status CudaRank::open_copies() {
  const auto launch_add = [this](const void* kernel, const kernels::Add& add, std::uint32_t blocks, void* stream) {
    return launcher_->launch(kernel, &add, {blocks, kernels::max_threads, false}, stream);
  };
  STRAIT_ASSIGN(copies_, DeviceCopies::open(request_, arenas_, launch_add));
  return {};
}

/// Does nothing the second time.
Status CudaRank::open_wire_formats() {
  if (wire_scratch_.data() != nullptr) return {};
  const cuda::RelaxedDeviceScope scope(request_.device);
  STRAIT_TRY(cuda::load_kernels(kernels::all_wire_kernels()));
  STRAIT_ASSIGN(wire_scratch_, cuda::DeviceMemory::allocate_uncleared(request_.device, DeviceQuantized::scratch_bytes));
  const auto among = [&](std::uint32_t rank, std::uint32_t ranks) {
    return DeviceQuantized(rank, ranks, request_.ranks, wire_scratch_.data(), DeviceQuantized::scratch_bytes,
                           request_.options.max_sms);
  };
  quantized_ = among(request_.rank, request_.ranks);
  const kernels::Ring& across = arenas_.across_ring();
  if (across.ranks > 1) across_quantized_ = among(across.rank, across.ranks);
  return {};
}

CudaRank::~CudaRank() {
  ending_.emplace(request_.device);
  const bool ended = !order_ || has_own_work_ended();
  attendant_ = {};
  raise_pending_failures();  // else the peers would not hear of them
  if (ended) {
    questions_ = {};
    copies_ = {};
    reducers_ = {};
    return;
  }
  CallOrder::warn_not_ended(request_.rank, request_.device);
  auto* const left = new auto(std::tuple(
      std::move(copies_), std::move(reducers_), std::move(registrations_), std::move(order_), std::move(questions_),
      std::move(seen_), std::move(wire_scratch_), std::move(arenas_), std::move(mailbox_), std::move(keeps_pinned_)));
  auto& copies = std::get<DeviceCopies>(*left);
  if (copies.has_copies()) go_on_releasing(request_, copies, *std::get<std::unique_ptr<CallOrder>>(*left));
}

/// The attendant thread. It connects the kernels, which can only poll and write words of host memory, with the rest of
/// the library.
void CudaRank::run_attendant(const std::stop_token& stop) {
  cuda::begin_own_thread(request_.device);
  const std::atomic_ref abort(ring_.mailbox->abort);
  bool tells = false;
  for (int looks = 0; !stop.stop_requested(); ++looks) {
    if (abort == 0 && request_.watch->has_failed()) {
      abort = 1;
      reducers_.abort();
      tells = true;
    }
    tell_of_mailbox(*ring_.mailbox, request_, reducers_);
    {
      // A registration may hold it while it waits for other ranks.
      const std::unique_lock lock(copies_mutex_, std::try_to_lock);
      if (lock) copies_.poll();
    }
    // sticky() marks the failure as seen by this rank (Watch::Peers::on_failure), whose own thread may be elsewhere.
    // This comes last, because the flight recorder's dump asks the driver.
    if (std::exchange(tells, false)) (void)request_.watch->sticky();
    if (looks % looks_between_examinations == 0 && !request_.watch->has_failed()) {
      const auto read = [this] {
        auto counts = read_counts();
        if (!counts) raise_if_gpu_failed();
        return counts;
      };
      started_.poll(*ring_.mailbox, *request_.watch, read,
                    [this](std::uint32_t member) { return reducers_.rank_of(member); });
      if (request_.watch->examine_peers()) (void)StartedCalls::compare(*request_.watch);
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

/// Looks only for kernels that have timed out: those that end by the abort word do so after the error was raised.
void CudaRank::raise_pending_failures() const {
  kernels::Mailbox* const mailbox = ring_.mailbox;
  if (mailbox != nullptr && std::atomic_ref(mailbox->timed_out).load() != 0 && !request_.watch->has_failed())
    tell_of_mailbox(*mailbox, request_, reducers_);
}

std::optional<bool> CudaRank::is_idle() const { return is_idle_as_asked(*questions_, *order_, longest_question); }

std::optional<kernels::LaunchCounts> CudaRank::read_counts() const {
  const auto read = [order = order_.get()] {
    const cuda::RelaxedCapture relaxed;  // another thread may be capturing
    return order->read_counts();
  };
  return questions_->ask(read, longest_question);
}

/// Kernels that give up count as ended, and so do those behind them: once one has given up, these counts mean nothing.
std::optional<DeviceProgress> CudaRank::progress() {
  const auto counts = read_counts();
  started_.record_marks_of_waiting(*ring_.mailbox, request_.watch->own_control());
  if (counts) started_.record(counts->started, *ring_.mailbox, request_.watch->own_control());
  for (std::uint32_t* gave_up : {&ring_.mailbox->timed_out, &ring_.mailbox->aborted})
    if (std::atomic_ref(*gave_up).load() != 0) return DeviceProgress{};
  return counts ? std::optional(DeviceProgress{counts->collectives, counts->have_ended()}) : std::nullopt;
}

Status CudaRank::prepare_call(const Call& call) {
  if (!is_encoded(call, request_.ranks) || wire_scratch_.data() != nullptr) return {};
  STRAIT_ASSIGN(const bool is_captured, order_->look_at(call.stream));
  if (!is_captured) return open_wire_formats();
  return fail(Code::invalid_usage,
              std::string(name(call.collective)) +
                  ": the first call in a wire format allocates memory, which a graph cannot capture. Ask for the "
                  "format when the communicator is made (`wire` in the configuration, or STRAIT_WIRE), or make such a "
                  "call before the capture");
}

Status CudaRank::register_memory(std::uint64_t number, void* pointer, std::size_t bytes) {
  if (arenas_.is_staged() || request_.ranks < 2) return {};
  DeviceGuard guard(request_.device);
  // A capture may be under way: programs register what they have just allocated for a graph.
  const cuda::RelaxedCapture relaxed;
  const std::string problem = "GPU " + std::to_string(request_.device) + " cannot be used";
  Status usable = error_of_gpu(problem);
  // The driver's calls need a context, which a thread that has not used CUDA does not have.
  if (usable) usable = check(cudaSetDevice(request_.device), problem);
  STRAIT_TRY(request_.agree(usable, "use its GPU"));
  STRAIT_TRY(registrations_.add(request_, number, pointer, bytes));
  const std::lock_guard lock(copies_mutex_);
  Status ready = copies_.open_in_place(arenas_);
  if (!ready) registrations_.remove(number);
  return ready;
}

void CudaRank::drop_unused_registration(std::uint64_t number) {
  DeviceGuard guard(request_.device);
  const cuda::RelaxedCapture relaxed;  // unmapping must not spoil a capture of another thread
  registrations_.remove(number);
}

Status CudaRank::deregister_memory(std::uint64_t number) {
  if (!registrations_.has(number)) return {};
  DeviceGuard guard(request_.device);
  const cuda::RelaxedCapture relaxed;  // unmapping must not spoil a capture of another thread
  if (!has_own_work_ended()) return CallOrder::has_not_ended(request_.device);
  registrations_.remove(number);
  return check_gpu();
}

Status CudaRank::await_work() {
  DeviceGuard guard(request_.device);
  const cuda::RelaxedCapture relaxed;
  return has_own_work_ended() ? check_gpu() : CallOrder::has_not_ended(request_.device);
}

/// Raises an error if this rank's GPU has failed. Called when peers wait for it, because nobody else might ask it for
/// long, as in a program that itself waits for data.
void CudaRank::raise_if_gpu_failed() const {
  const auto asked =
      questions_->ask([order = order_.get()] { return std::optional(order->device_has_failed()); }, longest_question);
  if (asked == true) (void)check_gpu();
}

/// Returns the error of a GPU that has failed. Calls cudaFree() only then, because CUDA does not promise that it waits
/// for nothing on the GPU.
Status CudaRank::error_of_gpu(const std::string& what) const {
  if (!order_->device_has_failed()) return {};
  const cudaError_t error = cudaFree(nullptr);
  // CUDA is unloaded before the process ends. That is no failure of the GPU, and peers hear of the end in another way.
  return error == cudaErrorCudartUnloading ? Status() : check(error, what);
}

/// Raises an error if the GPU has failed: its calls have ended then, but have no results.
Status CudaRank::check_gpu() const {
  Status works =
      error_of_gpu("GPU " + std::to_string(request_.device) + " of " + request_.watch->name_of(request_.rank) +
                   " has failed, perhaps by other work of its process, so that calls have no results. Look "
                   "for the first CUDA error there");
  if (works) return {};
  return tl::unexpected(request_.watch->raise(std::move(works).error()));
}

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(const Request& request) {
  auto rank = std::make_unique<CudaRank>(request);
  STRAIT_TRY(rank->prepare());
  return rank;
}

}  // namespace strait
