// GPU ranks over memory that peers reach directly (NVLink, PCIe P2P).
#include "communicator/device_rank.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "executor/cuda/runtime.hpp"
#include "kernels/cut.hpp"
#include "kernels/kernels.hpp"
#include "transports/cuda_p2p/shared_memory.hpp"

namespace strait {
namespace {

using cuda::check;
using cuda::DeviceGuard;
using kernels::Exchange;
using kernels::Message;
using kernels::TwoHop;

constexpr std::int64_t slow_ms = 10'000;
constexpr auto look_every = std::chrono::milliseconds(5);
constexpr int looks_between_examinations = 10;
/// Up to here one hop, which sends everything to everybody, beats two, which send twice but less (4x H200).
constexpr std::size_t one_hop_limit_bytes = 512 << 10;
constexpr std::size_t one_hop_reduce_limit_bytes = 1 << 20;
/// Slices from this on a lane are cut so that the hops overlap.
constexpr std::size_t overlap_from_bytes = 12 << 10;
constexpr std::size_t overlap_rounds = 3;

std::uint16_t hash_of(const CallSignature& signature) {
  std::uint64_t h = (signature.what ^ signature.count * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  h ^= h >> 32;
  return static_cast<std::uint16_t>(h ^ h >> 16);
}

class CudaRank final : public DeviceRank {
 public:
  explicit CudaRank(const Request& request) : request_(request) {}
  ~CudaRank() override;
  Status prepare();

  int device() const override { return request_.device; }
  Status enqueue(const Call& call) override;
  Status enqueue_messages(std::span<const Call> calls) override;
  Result<bool> is_capturing(void* stream) const override;

 private:
  std::uint32_t lanes_limit() const {
    return request_.max_sms == 0 ? ring_.lanes : std::min(request_.max_sms, ring_.lanes);
  }
  bool takes_one_hop(const Call& call, std::size_t bytes) const;
  Exchange exchange_of(const Call& call) const;
  void fill_blocks(Exchange& exchange, const Call& call) const;
  void fill_rooted(Exchange& exchange, const Call& call) const;
  TwoHop two_hop_of(const Call& call) const;
  Status launch(Exchange exchange, const void* kernel, void* stream);
  Status launch(TwoHop call, const void* kernel, void* stream);
  Status launch(const void* kernel, std::uint32_t lanes, std::uint32_t pieces, void* parameters, void* stream);
  Status order_after_last(cudaStream_t stream);
  Status order(void* first, void* then);
  void look_after(const std::stop_token& stop);
  void read_mailbox();

  Request request_;
  kernels::Ring ring_{};
  cuda_p2p::SharedMemory arena_;
  std::vector<cuda_p2p::SharedMemory> peers_;
  cuda::DeviceMemory barrier_tokens_;
  cuda::MappedMemory mailbox_;
  cudaEvent_t order_ = nullptr;
  cudaStream_t last_stream_ = nullptr;
  bool has_run_ = false;
  std::jthread attendant_;  ///< last: it uses the rest
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
  STRAIT_TRY(check(cudaFree(nullptr), "GPU " + std::to_string(request_.device) + " cannot be used"));
  const std::size_t bytes = kernels::ArenaLayout::size_bytes(request_.ranks);
  STRAIT_ASSIGN(arena_, cuda_p2p::SharedMemory::allocate(request_.device, bytes));
  STRAIT_ASSIGN(const UniqueFd shared, arena_.share());
  STRAIT_ASSIGN(const auto descriptors, request_.exchange(shared.get()));
  peers_.resize(request_.ranks);
  for (std::uint32_t peer = 0; peer < request_.ranks; ++peer) {
    if (peer != request_.rank) {
      STRAIT_ASSIGN(peers_[peer], cuda_p2p::SharedMemory::import(descriptors[peer].get(), bytes, request_.device));
    }
    ring_.arenas[peer] = peer == request_.rank ? arena_.data() : peers_[peer].data();
  }
  STRAIT_ASSIGN(barrier_tokens_, cuda::DeviceMemory::allocate(request_.device, 2 * 8 * kernels::max_ranks));
  STRAIT_ASSIGN(mailbox_, cuda::MappedMemory::allocate(sizeof(kernels::Mailbox)));
  STRAIT_TRY(check(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "cannot create an event"));
  // A kernel that is loaded only when first launched would wait for the kernels that wait for it.
  for (const void* kernel : kernels::all_kernels()) {
    cudaFuncAttributes attributes;
    STRAIT_TRY(check(cudaFuncGetAttributes(&attributes, kernel), "cannot load a kernel"));
  }
  ring_.mailbox = static_cast<kernels::Mailbox*>(mailbox_.data());
  ring_.slow_ns = slow_ms * 1'000'000;
  ring_.timeout_ns = static_cast<std::uint64_t>(request_.timeout_ms) * 1'000'000;
  ring_.rank = request_.rank;
  ring_.ranks = request_.ranks;
  ring_.lanes = kernels::ArenaLayout::lanes(request_.ranks);
  attendant_ = std::jthread([this](const std::stop_token& stop) { look_after(stop); });
  return {};
}

CudaRank::~CudaRank() {
  DeviceGuard guard(request_.device);
  // Kernels that still run end by themselves, or by the abort word that the attendant raises.
  if (has_run_) cudaDeviceSynchronize();
  attendant_ = {};
  if (order_ != nullptr) cudaEventDestroy(order_);
}

/// Goes between the kernels, which can only poll and write a word, and the rest of the library.
void CudaRank::look_after(const std::stop_token& stop) {
  const std::atomic_ref abort(ring_.mailbox->abort);
  for (int looks = 0; !stop.stop_requested(); ++looks) {
    if (abort == 0 && request_.watch->has_failed()) abort = 1;
    read_mailbox();
    if (looks % looks_between_examinations == 0 && !request_.watch->has_failed()) (void)request_.watch->examine_peers();
    std::this_thread::sleep_for(look_every);
  }
}

void CudaRank::read_mailbox() {
  using Event = kernels::Mailbox::Event;
  kernels::Mailbox& mailbox = *ring_.mailbox;
  const std::atomic_ref word(mailbox.event);
  const Event event = word.load(std::memory_order_acquire);
  if (event == Event::none) return;
  const std::uint32_t peer = std::min(std::atomic_ref(mailbox.peer).load(), request_.ranks - 1);
  word.store(Event::none);
  const std::string what = "a kernel on " + request_.watch->name_of(request_.rank) + " has waited ";
  if (event == Event::timeout)
    request_.watch->raise({Code::timeout, what + "longer than its deadline of " + std::to_string(request_.timeout_ms) +
                                              " ms for " + request_.watch->name_of(peer)});
  if (event == Event::slow && request_.watch->has_left(peer))
    request_.watch->raise({Code::remote_error, what + std::to_string(slow_ms / 1000) + " s for " +
                                                   request_.watch->name_of(peer) +
                                                   ", which has destroyed its communicator"});
  else if (event == Event::slow)
    log_warn(static_cast<int>(request_.rank), what + std::to_string(slow_ms / 1000) + " s for " +
                                                  request_.watch->name_of(peer) +
                                                  "; it goes on waiting. Look at what that rank is doing");
}

Result<bool> CudaRank::is_capturing(void* stream) const {
  cudaStreamCaptureStatus status{};
  STRAIT_TRY(check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status), "the stream cannot be used"));
  return status != cudaStreamCaptureStatusNone;
}

/// Operations of a communicator run one after another, whatever streams they are given.
Status CudaRank::order_after_last(cudaStream_t stream) {
  if (has_run_ && stream != last_stream_) {
    STRAIT_ASSIGN(const bool captures, is_capturing(stream));
    STRAIT_ASSIGN(const bool captured, is_capturing(last_stream_));
    if (captures == captured) STRAIT_TRY(order(last_stream_, stream));
  }
  last_stream_ = stream;
  has_run_ = true;
  return {};
}

Status CudaRank::order(void* first, void* then) {
  STRAIT_TRY(check(cudaEventRecord(order_, static_cast<cudaStream_t>(first)), "cannot order two streams"));
  return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(then), order_, 0), "cannot order two streams");
}

Status CudaRank::launch(const void* kernel, std::uint32_t lanes, std::uint32_t pieces, void* parameters, void* stream) {
  DeviceGuard guard(request_.device);
  STRAIT_TRY(order_after_last(static_cast<cudaStream_t>(stream)));
  const std::uint32_t threads = kernels::threads_for(pieces, std::max(ring_.ranks, 2u) - 1);
  void* arguments[] = {parameters};
  return check(cudaLaunchKernel(kernel, dim3(lanes), dim3(threads), arguments, 0, static_cast<cudaStream_t>(stream)),
               "cannot launch a kernel on GPU " + std::to_string(request_.device));
}

Status CudaRank::launch(Exchange exchange, const void* kernel, void* stream) {
  std::uint32_t lanes = 0;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer)
    for (const Message* message : {&exchange.send[peer], &exchange.receive[peer]}) {
      if (message->bytes == 0) continue;
      lanes = std::max<std::uint32_t>(lanes, message->lanes);
      const std::size_t longest = std::min<std::size_t>(message->bytes, message->chunk_bytes);
      exchange.pieces = std::max(exchange.pieces, kernels::pieces_of(longest));
    }
  if (lanes == 0) return {};
  return launch(kernel, lanes, exchange.pieces, &exchange, stream);
}

Status CudaRank::launch(TwoHop call, const void* kernel, void* stream) {
  call.pieces = kernels::pieces_of(std::min<std::size_t>(call.slice_bytes, call.chunk_bytes));
  return launch(kernel, call.lanes, call.pieces, &call, stream);
}

bool CudaRank::takes_one_hop(const Call& call, std::size_t bytes) const {
  const bool has_two = call.collective == Collective::all_reduce || call.collective == Collective::reduce ||
                       call.collective == Collective::broadcast;
  if (!has_two || ring_.ranks <= 2) return true;
  if (request_.algorithm == "one_hop") return true;
  if (request_.algorithm == "two_hop") return false;
  return bytes <= (call.collective == Collective::reduce ? one_hop_reduce_limit_bytes : one_hop_limit_bytes);
}

Status CudaRank::enqueue(const Call& call) {
  const std::size_t bytes = call.count * size_bytes(call.type);
  if (bytes == 0 && call.collective != Collective::barrier && call.collective != Collective::all_to_all_v) return {};
  if (!takes_one_hop(call, bytes)) {
    const bool reduces = is_reduction(call.collective);
    STRAIT_TRY(launch(two_hop_of(call),
                      reduces ? kernels::two_hop_reduce_kernel(call.type, call.op) : kernels::two_hop_copy_kernel(),
                      call.stream));
    if (call.collective != Collective::broadcast || call.root != ring_.rank || call.send == call.receive) return {};
    return check(cudaMemcpyAsync(call.receive, call.send, bytes, cudaMemcpyDeviceToDevice,
                                 static_cast<cudaStream_t>(call.stream)),
                 "cannot copy the root's own part of a broadcast");
  }
  const Exchange exchange = exchange_of(call);
  return launch(exchange,
                is_reduction(call.collective) ? kernels::exchange_reduce_kernel(call.type, call.op)
                                              : kernels::exchange_copy_kernel(),
                call.stream);
}

Exchange CudaRank::exchange_of(const Call& call) const {
  Exchange exchange{};
  exchange.ring = ring_;
  exchange.op = call.op;
  std::memcpy(&exchange.premul_scalar, call.premul_scalar.data(), sizeof exchange.premul_scalar);
  if (has_root(call.collective))
    fill_rooted(exchange, call);
  else
    fill_blocks(exchange, call);
  return exchange;
}

/// What every rank does alike.
void CudaRank::fill_blocks(Exchange& exchange, const Call& call) const {
  const std::size_t element = size_bytes(call.type), block = call.count * element;
  const std::uint16_t hash = hash_of(signature(call));
  const auto* from = static_cast<const std::byte*>(call.send);
  auto* to = static_cast<std::byte*>(call.receive);
  const auto part = [&](const void* data, std::size_t bytes) {
    return kernels::message(data, bytes, lanes_limit(), hash);
  };
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    Message& send = exchange.send[peer];
    Message& receive = exchange.receive[peer];
    switch (call.collective) {
      case Collective::all_reduce:
        send = part(from, block);
        receive = part(to, block);
        break;
      case Collective::reduce_scatter:
        send = part(from + peer * block, block);
        receive = part(to, block);
        break;
      case Collective::all_gather:
        send = part(from, block);
        receive = part(to + peer * block, block);
        break;
      case Collective::all_to_all:
        send = part(from + peer * block, block);
        receive = part(to + peer * block, block);
        break;
      case Collective::all_to_all_v:
        send = kernels::message(from + call.send_offsets[peer] * element, call.send_counts[peer] * element,
                                lanes_limit(), hash_of(message_signature(call, call.send_counts[peer])));
        receive = kernels::message(to + call.receive_offsets[peer] * element, call.receive_counts[peer] * element,
                                   lanes_limit(), hash_of(message_signature(call, call.receive_counts[peer])));
        break;
      default:  // a barrier: a token from everybody to everybody
        send = part(barrier_tokens_.data(), 8);
        receive = part(barrier_tokens_.data() + 8 * (kernels::max_ranks + peer), 8);
        break;
    }
  }
}

void CudaRank::fill_rooted(Exchange& exchange, const Call& call) const {
  const std::size_t bytes = call.count * size_bytes(call.type);
  const std::uint16_t hash = hash_of(signature(call));
  const auto* from = static_cast<const std::byte*>(call.send);
  auto* to = static_cast<std::byte*>(call.receive);
  const bool is_root = ring_.rank == call.root;
  const bool from_root = call.collective == Collective::broadcast || call.collective == Collective::scatter;
  const std::size_t send_stride = call.collective == Collective::scatter ? bytes : 0;
  const std::size_t receive_stride = call.collective == Collective::gather ? bytes : 0;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    const bool sends = from_root ? is_root : peer == call.root;
    const bool receives = from_root ? peer == call.root : is_root;
    if (sends) exchange.send[peer] = kernels::message(from + peer * send_stride, bytes, lanes_limit(), hash);
    if (receives) exchange.receive[peer] = kernels::message(to + peer * receive_stride, bytes, lanes_limit(), hash);
  }
  // The root's own part needs both ends.
  if (is_root) {
    exchange.send[ring_.rank] = kernels::message(from + ring_.rank * send_stride, bytes, lanes_limit(), hash);
    exchange.receive[ring_.rank] = kernels::message(to + ring_.rank * receive_stride, bytes, lanes_limit(), hash);
  }
}

TwoHop CudaRank::two_hop_of(const Call& call) const {
  TwoHop two_hop{};
  const std::uint32_t everybody = (1u << ring_.ranks) - 1, root = 1u << call.root;
  two_hop.ring = ring_;
  two_hop.input = static_cast<const std::byte*>(call.send);
  two_hop.output = static_cast<std::byte*>(call.receive);
  two_hop.bytes = call.count * size_bytes(call.type);
  two_hop.contributors = call.collective == Collective::broadcast ? root : everybody;
  two_hop.owners = call.collective == Collective::all_reduce ? everybody : everybody & ~root;
  two_hop.receivers = call.collective == Collective::all_reduce  ? everybody
                      : call.collective == Collective::broadcast ? everybody & ~root
                                                                 : root;
  const std::size_t owners = call.collective == Collective::all_reduce ? ring_.ranks : ring_.ranks - 1;
  constexpr std::size_t grain = 16;  // every slice but the last begins aligned if the buffer does
  two_hop.slice_bytes = (two_hop.bytes + owners * grain - 1) / (owners * grain) * grain;
  const bool overlaps = two_hop.slice_bytes / lanes_limit() >= overlap_from_bytes;
  const kernels::Cut cut = kernels::cut(two_hop.slice_bytes, lanes_limit(), overlaps ? overlap_rounds : 1);
  two_hop.chunk_bytes = cut.chunk_bytes;
  two_hop.lanes = cut.lanes;
  two_hop.call_hash = hash_of(signature(call));
  two_hop.op = call.op;
  std::memcpy(&two_hop.premul_scalar, call.premul_scalar.data(), sizeof two_hop.premul_scalar);
  return two_hop;
}

Status CudaRank::enqueue_messages(std::span<const Call> calls) {
  // The k-th message between two ranks travels in launch k on both sides.
  std::vector<Exchange> launches;
  std::vector<std::uint32_t> sent(ring_.ranks), received(ring_.ranks);
  void* const stream = calls.front().stream;
  for (const Call& call : calls) {
    const std::size_t bytes = call.count * size_bytes(call.type);
    if (bytes == 0) continue;
    const std::uint32_t turn = (call.sends ? sent : received)[call.peer]++;
    if (turn >= launches.size()) {
      launches.emplace_back();
      launches.back().ring = ring_;
    }
    Message& place = (call.sends ? launches[turn].send : launches[turn].receive)[call.peer];
    place = kernels::message(call.sends ? call.send : call.receive, bytes, lanes_limit(), hash_of(signature(call)));
  }
  // All run on the first call's stream: between what the other streams did before and what they do next.
  for (const Call& call : calls)
    if (call.stream != stream) STRAIT_TRY(order(call.stream, stream));
  for (const Exchange& exchange : launches) STRAIT_TRY(launch(exchange, kernels::exchange_copy_kernel(), stream));
  for (const Call& call : calls)
    if (call.stream != stream) STRAIT_TRY(order(stream, call.stream));
  return {};
}

}  // namespace

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(const Request& request) {
  auto rank = std::make_unique<CudaRank>(request);
  STRAIT_TRY(rank->prepare());
  return rank;
}

Status check_devices_supported(int /*device*/) { return {}; }

Result<std::string> device_bus_id(int device) {
  char id[32] = {};
  STRAIT_TRY(check(cudaDeviceGetPCIBusId(id, sizeof id, device), "GPU " + std::to_string(device) + " cannot be used"));
  return std::string(id);
}

}  // namespace strait
