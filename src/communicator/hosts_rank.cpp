#include "communicator/hosts_rank.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "device/island_messages.hpp"
#include "executor/copy_engine/cuda_stream_driver.hpp"

namespace strait {

using cuda::check;
using cuda::DeviceGuard;

namespace {

/// A slot holds what goes to all hosts in one round, and all slots together hold a piece of each message of a launch.
constexpr std::uint32_t slot_bytes = 1 << 20;
constexpr std::size_t counts_offset_bytes = 4096, scratch_offset_bytes = 8192;
constexpr std::size_t scratch_bytes = std::size_t{4} << 20;
static_assert(sizeof(kernels::LaunchCounts) <= counts_offset_bytes &&
              sizeof(kernels::NetworkCounts) <= scratch_offset_bytes - counts_offset_bytes);
static_assert(3 * scratch_bytes <= IslandStep::parts_grain * slot_bytes);  // NetworkCalls::piece_of_rounds()
static_assert(slot_bytes / most_hosts >= 16 << 10 && scratch_bytes / most_hosts >= 64 << 10);

constexpr auto poll_interval = std::chrono::milliseconds(2);
constexpr int looks_between_examinations = 25, looks_between_questions = 250;
constexpr auto longest_question = std::chrono::milliseconds(100);
constexpr std::int64_t longest_drain_ms = 600'000;

}  // namespace

Result<std::unique_ptr<DeviceRank>> open_hosts_rank(HostsRequest request) {
  auto rank = std::make_unique<HostsRank>(std::move(request));
  STRAIT_TRY(rank->prepare());
  return rank;
}

Status HostsRank::prepare() {
  const DeviceGuard guard(request_.device);
  const cuda::RelaxedCapture relaxed;
  parts_.push_back(request_.host.get());
  for (const auto* lanes : {&request_.across, &request_.all})
    for (const auto& comm : *lanes) parts_.push_back(comm.get());
  transport_name_ = request_.host->transport_name() + "+" + request_.all.front()->transport_name();
  STRAIT_TRY(request_.agree(open_memory(), "prepare what it trades with other hosts"));
  const std::uint32_t piece_bytes = network_piece_bytes(slot_bytes, request_.all.front()->slot_bytes());
  hosts_ = DeviceIslands(request_.rank, request_.hosts, scratch(), scratch_bytes);
  calls_ = NetworkCalls(request_.rank, request_.hosts, {slot_bytes, piece_bytes, request_.exact_lanes});
  questions_ = std::make_unique<TimeLimitedQuestions>([device = request_.device] { cuda::begin_own_thread(device); });
  STRAIT_TRY(request_.agree(open_proxy(), "start its proxy"));
  attendant_ = std::jthread([this](const std::stop_token& stop) { run_attendant(stop); });
  return {};
}

kernels::Mailbox* HostsRank::mailbox() const { return static_cast<kernels::Mailbox*>(mailbox_.data()); }
kernels::NetworkWords* HostsRank::words() const { return static_cast<kernels::NetworkWords*>(network_.data()); }
std::byte* HostsRank::slots() const { return static_cast<std::byte*>(network_.data()) + kernels::network_words_bytes; }
kernels::LaunchCounts* HostsRank::launch_counts() const {
  return reinterpret_cast<kernels::LaunchCounts*>(memory_.data());
}
std::byte* HostsRank::scratch() const { return memory_.data() + scratch_offset_bytes; }

Status HostsRank::open_memory() {
  STRAIT_ASSIGN(mailbox_, cuda::MappedMemory::allocate(sizeof(kernels::Mailbox)));
  STRAIT_ASSIGN(seen_, cuda::MappedMemory::allocate(sizeof(kernels::LaunchCounts)));
  STRAIT_ASSIGN(network_, cuda::MappedMemory::allocate(kernels::network_bytes(slot_bytes)));
  STRAIT_ASSIGN(memory_, cuda::DeviceMemory::allocate(request_.device, scratch_offset_bytes + scratch_bytes));
  STRAIT_ASSIGN(launcher_, cuda::Launcher::open(request_.device));
  const std::array kernels{kernels::network_exchange_kernel(), kernels::network_messages_kernel()};
  STRAIT_TRY(cuda::load_kernels(kernels));
  return open_order();
}

Status HostsRank::open_order() {
  STRAIT_ASSIGN(auto beside, copy_engine::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(side_, SideStreams::open(std::move(beside)));
  STRAIT_ASSIGN(beside, copy_engine::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(waking_, SideStreams::open(std::move(beside)));
  CallOrder::Setup setup;
  STRAIT_ASSIGN(setup.driver, copy_engine::open_cuda_streams(request_.device));
  STRAIT_ASSIGN(setup.reader, copy_engine::open_cuda_streams(request_.device));
  setup.counts = launch_counts();
  setup.seen = static_cast<kernels::LaunchCounts*>(seen_.data());
  setup.joins_graphs = request_.joins_graphs;
  STRAIT_ASSIGN(order_, CallOrder::open(std::move(setup)));
  return {};
}

Status HostsRank::open_proxy() {
  NetworkProxy::Setup setup;
  setup.rank = static_cast<int>(request_.rank);
  setup.words = words();
  setup.slots = slots();
  setup.slot_bytes = slot_bytes;
  setup.lanes = static_cast<std::uint32_t>(request_.all.size());
  setup.exact_lanes = request_.exact_lanes;
  setup.run = [this](std::uint32_t lane, auto among, const Call& call) {
    Comm& comm = comm_of(lane, among);
    return comm.or_out_of_memory([&] { return comm.run(call); });
  };
  setup.run_messages = [this](std::uint32_t lane, std::span<const Call> messages, MessagePieces& pieces) {
    Comm& comm = *request_.all[lane];
    return comm.or_out_of_memory([&] { return comm.run_messages(messages, pieces); });
  };
  setup.receive_early = [this](std::uint32_t lane, auto among) {
    if (among == kernels::NetworkCall::Among::all || !request_.across.empty()) comm_of(lane, among).receive_early();
  };
  setup.has_failed = [watch = request_.watch] { return watch->has_failed(); };
  setup.fail = [watch = request_.watch](const Error& error) { watch->raise(error); };
  proxy_ = std::make_unique<NetworkProxy>(std::move(setup));
  return proxy_->start();
}

Status HostsRank::enqueue(const Call& call) {
  const DeviceGuard guard(request_.device);  // a null stream means this device's default stream
  STRAIT_TRY(order_->begin(call.stream));
  const Status done = carry_out(call);
  const Status ended = order_->end(call.stream, CallOrder::Tail::other);
  return done ? ended : done;
}

Status HostsRank::enqueue_aggregate(std::span<const Call> calls) {
  for (const Call& call : calls) STRAIT_TRY(enqueue(call));
  return {};
}

/// Calls that only copy are not encoded, and neither are reduce-scatters between hosts of different size.
Status HostsRank::carry_out(const Call& call) {
  const bool is_lengths = call.collective == Collective::all_to_all_v;
  if (call.count == 0 && call.collective != Collective::barrier && !is_lengths) return {};
  Call exact = call;
  if (!hosts_.carries(call)) exact.wire = WireFormat::off;
  const std::vector<IslandStep> steps =
      hosts_.carries(exact) ? hosts_.steps_of(exact) : std::vector{IslandStep{IslandStep::Among::all, exact}};
  for (const IslandStep& step : steps) STRAIT_TRY(carry_out(step));
  return {};
}

Status HostsRank::carry_out(const IslandStep& step) {
  const Call& call = step.call;
  if (step.among == IslandStep::Among::island) return request_.host->begin(call);
  for (const NetworkLaunch& one : calls_.launches_of(step)) STRAIT_TRY(launch(one, call.max_sms, call.stream));
  return {};
}

Status HostsRank::launch(const NetworkLaunch& what, std::uint32_t max_sms, void* stream) {
  for (const auto& [to, from, bytes] : what.copies)
    STRAIT_TRY(check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
                     "cannot copy what stays with the rank"));
  if (what.flows.empty() && what.call.collective == Collective::send_recv) return {};
  kernels::NetworkExchange argument{};
  argument.ring.mailbox = mailbox();
  argument.ring.launch_counts = launch_counts();
  argument.ring.finished = order_->finished();
  argument.ring.ranks = 1;
  argument.words = words();
  argument.slots = slots();
  argument.counts = reinterpret_cast<kernels::NetworkCounts*>(memory_.data() + counts_offset_bytes);
  argument.slot_bytes = slot_bytes;
  argument.first_step = what.first_step;
  argument.end_step = what.end_step;
  argument.local_copy_to = what.local_copy.to;
  argument.local_copy_from = what.local_copy.from;
  argument.local_copy_bytes = static_cast<std::uint32_t>(what.local_copy.bytes);
  argument.call = what.call;
  argument.call.flow_count = static_cast<std::uint32_t>(what.flows.size());
  argument.call.blocks = NetworkCalls::blocks_for(what, max_sms != 0 ? max_sms : request_.max_sms);
  std::copy(what.flows.begin(), what.flows.end(), argument.flows);
  const void* const kernel = what.call.collective == Collective::send_recv ? kernels::network_messages_kernel()
                                                                           : kernels::network_exchange_kernel();
  const auto launch_now = [&] {
    return launcher_->launch(kernel, &argument, {argument.call.blocks, kernels::max_threads, false}, stream);
  };
  if (what.first_step != 0) {  // the proxy has begun this call already
    STRAIT_TRY(launch_now());
  } else if (order_->is_captured()) {
    STRAIT_TRY(launch_waking(launch_now, stream));
  } else {
    proxy_->expect();
    STRAIT_TRY(launch_now());
  }
  order_->launched(argument.call.blocks);
  return {};
}

void HostsRank::wake(void* wake) {
  const auto& given = *static_cast<const Wake*>(wake);
  given.proxy.expect(given.calls);
}

/// Nothing announces that a graph is launched. So its stream wakes the proxy, by a host function beside the graph's
/// first kernel, which need not wait for that if the proxy is awake. The proxy stays awake for the graph's other calls,
/// because waking it for each takes longer than short calls do.
Status HostsRank::launch_waking(const std::function<Status()>& launch, void* stream) {
  const std::uint64_t capture = order_->capture_id();
  if (!wakes_.empty() && wakes_.back().capture == capture) {
    ++wakes_.back().calls;
    return launch();
  }
  wakes_.emplace_back(*proxy_, capture);
  STRAIT_ASSIGN(void* const beside, waking_->fork(stream));
  Status given = check(cudaLaunchHostFunc(static_cast<cudaStream_t>(beside), &HostsRank::wake, &wakes_.back()),
                       "cannot have a stream wake the proxy");
  if (given) given = launch();
  const Status joined = waking_->join(stream);  // even after a failure: a capture must end with all forks joined
  return given ? joined : given;
}

Status HostsRank::enqueue_messages(std::span<const Call> calls) {
  const DeviceGuard guard(request_.device);
  void* const stream = calls.front().stream;
  // As in CudaRank, all messages run on the first call's stream.
  for (const Call& call : calls)
    if (call.stream != stream) STRAIT_TRY(order_->order(call.stream, stream));
  STRAIT_TRY(order_->begin(stream));
  Status done = carry_messages(calls, stream);
  for (const Call& call : calls)
    if (done && call.stream != stream) done = order_->order(stream, call.stream);
  const Status ended = order_->end(stream, CallOrder::Tail::other);
  return done ? ended : done;
}

/// Messages within the host and messages to other hosts do not wait for each other (IslandMessages).
Status HostsRank::carry_messages(std::span<const Call> calls, void* stream) {
  const Island& own = request_.hosts[place_of(request_.hosts, request_.rank).island];
  SplitMessages split = split_messages(calls, own, request_.rank);
  for (Call& message : split.inside) message.stream = stream;
  const std::vector<NetworkLaunch> launches = calls_.launches_of_messages(split.others);
  const bool has_both = !split.inside.empty() && !launches.empty();
  void* beside = stream;
  if (has_both) {
    STRAIT_ASSIGN(beside, side_->fork(stream));
  }
  const auto launch_from = [&](std::size_t first, std::size_t end) -> Status {
    for (std::size_t i = first; i < end; ++i) STRAIT_TRY(launch(launches[i], calls.front().max_sms, beside));
    return {};
  };
  // Streams may share a hardware queue, in which a launch that waits for the one before it holds up what comes after
  // it. So only the first launch for other hosts comes before the messages within the host.
  Status done = launch_from(0, std::min<std::size_t>(launches.size(), 1));
  if (done && !split.inside.empty()) done = request_.host->begin_messages(split.inside);
  if (done) done = launch_from(1, launches.size());
  if (!has_both) return done;
  const Status joined = side_->join(stream);  // even after a failure: a capture must end with all forks joined
  return done ? joined : done;
}

Status HostsRank::prepare_call(const Call& call) {
  const bool has_blocks = call.collective == Collective::reduce_scatter && hosts_.carries(call);
  if (call.residual == nullptr || !has_blocks || request_.hosts.size() <= most_residual_hosts) return {};
  return fail(Code::unsupported, std::string(name(call.collective)) + ": between GPUs of " +
                                     std::to_string(request_.hosts.size()) + " hosts it cannot have a residual, of " +
                                     std::to_string(most_residual_hosts) + " it can. Leave it out");
}

/// Registers the memory on all hosts or on none.
Status HostsRank::register_memory(std::uint64_t number, void* pointer, std::size_t bytes) {
  const Status own = request_.host->register_memory(number, pointer, bytes);
  const Status agreed = request_.agree(own, "register its memory");
  if (own && !agreed) drop_unused_registration(number);
  return agreed;
}
Status HostsRank::deregister_memory(std::uint64_t number) {
  const DeviceGuard guard(request_.device);
  const cuda::RelaxedCapture relaxed;
  if (!has_own_work_ended()) return CallOrder::has_not_ended(request_.device);
  proxy_->drain();
  return request_.host->deregister_memory(number);  // also after a failure: the handle is given back either way
}
void HostsRank::drop_unused_registration(std::uint64_t number) { request_.host->drop_unused_registration(number); }

void HostsRank::raise_pending_failures() const {
  for (const Comm* part : parts_)
    if (const Status status = part->sticky(); !status && !request_.watch->has_failed())
      request_.watch->raise(status.error());
}

/// The attendant thread. If this communicator or an internal one fails, it makes all of them fail.
void HostsRank::run_attendant(const std::stop_token& stop) {
  cuda::begin_own_thread(request_.device);
  kernels::Mailbox& told = *mailbox();
  for (int looks = 0; !stop.stop_requested(); ++looks) {
    raise_pending_failures();
    if (request_.watch->has_failed() && told.abort == 0) {
      std::atomic_ref(told.abort) = 1;
      for (Comm* part : parts_) part->fail_in(request_.watch->sticky().error());
    }
    if (looks % looks_between_examinations == 0 && !request_.watch->has_failed()) (void)request_.watch->examine_peers();
    if (looks % looks_between_questions == 0 && !request_.watch->has_failed()) raise_if_gpu_failed();
    std::this_thread::sleep_for(poll_interval);
  }
}

/// Raises an error if this rank's GPU has failed. Ranks of its host may have nothing to do with it, and ranks of other
/// hosts do not see it.
void HostsRank::raise_if_gpu_failed() const {
  const auto asked =
      questions_->ask([order = order_.get()] { return std::optional(order->device_has_failed()); }, longest_question);
  if (asked == true) (void)request_.host->await_device();  // raises the error
}

std::optional<bool> HostsRank::is_idle() const { return is_idle_as_asked(*questions_, *order_, longest_question); }

std::optional<DeviceProgress> HostsRank::progress() {
  const bool has_sent = !proxy_ || proxy_->is_idle();
  return DeviceProgress{std::nullopt, has_sent && is_idle() == true && !request_.watch->has_failed()};
}

Status HostsRank::await_work() {
  const DeviceGuard guard(request_.device);
  const cuda::RelaxedCapture relaxed;
  if (!has_own_work_ended()) return CallOrder::has_not_ended(request_.device);
  proxy_->drain();
  return request_.host->await_device();
}

HostsRank::~HostsRank() {
  ending_.emplace(request_.device);
  const bool ended = !order_ || has_own_work_ended();
  // A rank that comes late still gets what was sent to it. One that has died, or goes without coming, makes the
  // communicator fail, which ends the wait.
  if (ended && proxy_ && !proxy_->drain(Deadline::after_ms(NetworkProxy::longest_finish_ms))) {
    log_warn(static_cast<int>(request_.rank),
             "its communicator ends only once ranks of other hosts have received what it has sent to them. Let them "
             "make the same calls");
    // Ranks that all do this wait for one another, and none is seen to have gone.
    if (!proxy_->drain(Deadline::after_ms(longest_drain_ms)))
      request_.watch->raise({Code::aborted, request_.watch->name_of(request_.rank) +
                                                " has ended its communicator, and what it had sent was not received "
                                                "for ten minutes. Let all ranks make the same calls"});
  }
  attendant_ = {};
  if (order_ && order_->device_has_failed()) (void)request_.host->await_device();
  raise_pending_failures();  // else the peers would not hear of them
  if (request_.watch->has_failed())
    for (Comm* part : parts_) part->fail_in(request_.watch->sticky().error());
  if (proxy_) proxy_->end();
  if (ended) return;
  CallOrder::warn_not_ended(request_.rank, request_.device);
  (void)new auto(std::tuple(std::move(order_), std::move(questions_), std::move(seen_), std::move(memory_),
                            std::move(network_), std::move(mailbox_), std::move(wakes_), std::move(proxy_)));
}

}  // namespace strait
