#include "device/device_copies.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "executor/copy_engine/cuda_stream_driver.hpp"
#include "kernels/kernels.hpp"

namespace strait {
namespace {

constexpr std::size_t mb = std::size_t{1} << 20;

/// Most blocks that add: more than eight would outrun the link that brings the data.
constexpr std::uint32_t most_adding_blocks = 8;

/// Returns the sizes from which copy engines carry calls. None if not all ranks see a failure at once: when the
/// communicator fails, waiting copies are released, and tell peers that data has arrived which has not. Peers do not
/// take that for a result only if they know of the failure.
CopyBorders borders(const DeviceRank::Request& request, bool staged) {
  if (!request.shares_control) return {};
  // Too many streams of one process would wait for one another on one device.
  if (!staged && request.threads_share_a_gpu) return {};
  if (request.options.max_sms == no_sms) return copy_borders_of(no_sms);
  if (request.options.copy_engine_bytes != 0) return CopyBorders::all_from(request.options.copy_engine_bytes);
  return staged ? CopyBorders{} : copy_borders_of(request.options.max_sms);
}

/// Returns from which size of the output on calls go into registered outputs. From 256 MB on, if nothing waits on the
/// way, two and four H200 were no slower than with kernels of all blocks, which write directly there as well. Kernels
/// of fewer blocks go through slots; the 64 MB between two ranks were measured when all kernels did. The two meetings
/// of a call cost 35 us, in which four blocks move 6 MB. Calls in chunks that wait for others take longer than kernels
/// do: an in-place all-to-all, which first saves chunks (two H100), and a broadcast that is passed on (four H200).
std::size_t in_place_border_bytes(std::uint32_t max_sms, std::uint32_t ranks, bool in_chunks) {
  if (max_sms == no_sms) return 1;
  if (max_sms != 0 && max_sms <= 4) return 16 * mb;
  if (in_chunks) return ~std::size_t{0};
  return (max_sms == 0 || ranks > 2 ? 256 : 64) * mb;
}

/// Returns the ring for kernels that wait without a deadline, until an abort.
kernels::Ring patient(kernels::Ring ring) {
  ring.timeout_ns = 0;
  ring.slow_ns = kernels::never_slow_ns;
  return ring;
}

copy_engine::CopyCall copy_call_of(const Call& call) {
  return {call.collective, call.type, call.op, call.root, call.count, call.send, call.receive, call.max_sms};
}

}  // namespace

bool DeviceCopies::are_wanted(const DeviceRank::Request& request, bool staged) {
  return borders(request, staged).others_bytes != 0;
}

Result<DeviceCopies> DeviceCopies::open(const DeviceRank::Request& request, const DeviceArenas& arenas,
                                        LaunchAdd launch_add) {
  DeviceCopies copies;
  copies.request_ = &request;
  copies.borders_ = borders(request, arenas.is_staged());
  if (request.timeout_ms != 0) {
    STRAIT_ASSIGN(auto driver, copy_engine::open_cuda_streams(request.device));
    copies.gate_ = copy_engine::Gate(std::move(driver), &arenas.ring().mailbox->holds_copies);
  }
  if (arenas.windows() != nullptr) STRAIT_TRY(copies.open_staged(*arenas.windows()));
  if (arenas.peer_words() != nullptr) STRAIT_TRY(copies.open_peers(arenas, std::move(launch_add)));
  return copies;
}

Status DeviceCopies::open_staged(const HostMemory& windows) {
  STRAIT_ASSIGN(auto driver, copy_engine::open_cuda_streams(request_->device));
  STRAIT_ASSIGN(staged_, copy_engine::StagedCopies::open(
                             {.driver = std::move(driver),
                              .rank = request_->rank,
                              .ranks = request_->ranks,
                              .host = windows.data(),
                              .device = windows.device_data(),
                              .size_bytes = windows.size_bytes(),
                              .options = {},
                              .has_failed = [watch = request_->watch] { return watch->has_failed(); }}));
  return {};
}

/// Returns the part of the set-up that is common to all copies between GPUs.
Result<copy_engine::PeerCopies::Setup> DeviceCopies::setup_of(const DeviceArenas& arenas) const {
  copy_engine::PeerCopies::Setup setup;
  STRAIT_ASSIGN(setup.driver, copy_engine::open_cuda_streams(request_->device));
  setup.rank = request_->rank;
  setup.ranks = request_->ranks;
  setup.host_words = arenas.peer_words()->data();
  setup.device_words = arenas.peer_words()->device_data();
  setup.has_failed = [watch = request_->watch] { return watch->has_failed(); };
  return setup;
}

Status DeviceCopies::open_in_place(DeviceArenas& arenas) {
  if (arenas.is_staged() || request_->ranks < 2 || request_->threads_share_a_gpu || peers_) return {};
  if (!request_->shares_control) return {};
  STRAIT_TRY(arenas.open_peer_words(*request_));
  auto setup = setup_of(arenas);
  STRAIT_TRY(request_->agree(setup.map([](const auto&) {}), "use its copy engines"));
  auto peers = copy_engine::PeerCopies::open(std::move(*setup));
  STRAIT_TRY(request_->agree(peers.map([](const auto&) {}), "use its copy engines"));
  peers_ = std::move(*peers);
  return {};
}

Status DeviceCopies::open_peers(const DeviceArenas& arenas, LaunchAdd launch_add) {
  STRAIT_TRY(cuda::load_kernels(kernels::all_add_kernels()));
  STRAIT_ASSIGN(shares_done_,
                cuda::DeviceMemory::allocate(request_->device, copy_engine::PeerCopies::depth * sizeof(std::uint32_t)));
  STRAIT_ASSIGN(auto setup, setup_of(arenas));
  for (std::uint32_t peer = 0; peer < setup.ranks; ++peer) {
    if (peer == setup.rank) continue;
    setup.windows_there[peer] = arenas.copy_window(setup.rank, peer);
    setup.windows_here[peer] = arenas.copy_window(peer, setup.rank);
    setup.contributed_there[peer] = copy_words(arenas.ring(), setup.rank, peer);
    setup.contributed_here[peer] = copy_words(arenas.ring(), peer, setup.rank);
  }
  setup.window_bytes = arenas.copy_window_bytes();
  setup.launch = [ring = patient(arenas.ring()), shares = shares_done_.data(), max_sms = request_->options.max_sms,
                  launch = std::move(launch_add)](const copy_engine::CopyCall& call, kernels::Add add, void* stream) {
    add.ring = ring;
    add.shares_done = reinterpret_cast<std::uint32_t*>(shares);
    const std::uint32_t bound = blocks_of(call.max_sms != 0 ? call.max_sms : max_sms, true);
    const std::uint32_t blocks = bound == 0 ? most_adding_blocks : std::min(bound, most_adding_blocks);
    return launch(kernels::add_kernel(call.type, call.op), add, blocks, stream);
  };
  STRAIT_ASSIGN(messages_, copy_engine::PeerMessages::open({.driver = setup.driver,
                                                            .rank = setup.rank,
                                                            .ranks = setup.ranks,
                                                            .windows_there = setup.windows_there,
                                                            .windows_here = setup.windows_here,
                                                            .window_bytes = setup.window_bytes,
                                                            .host_words = setup.host_words,
                                                            .device_words = setup.device_words,
                                                            .has_failed = setup.has_failed}));
  STRAIT_ASSIGN(peers_, copy_engine::PeerCopies::open(std::move(setup)));
  return {};
}

CopyBorders DeviceCopies::borders_for(const Call& call) const {
  if (call.max_sms == no_sms) return copy_borders_of(no_sms);
  if (call.max_sms == 0 || request_->options.copy_engine_bytes != 0) return borders_;
  return staged_ ? CopyBorders{} : copy_borders_of(call.max_sms);
}

bool DeviceCopies::carries(const Call& call) const {
  const std::size_t least_bytes = borders_for(call).of(call.collective);
  if (least_bytes == 0 || call.count == 0 || (!staged_ && !peers_)) return false;
  if (buffer_sizes(call, call.root, request_->ranks).larger_bytes() < least_bytes) return false;
  return staged_ ? staged_->supports(copy_call_of(call)) : peers_->supports(copy_call_of(call));
}

bool DeviceCopies::carries_message(const Call& message) const {
  const std::size_t least_bytes = borders_.of(Collective::send_recv), bytes = message.count * size_bytes(message.type);
  return messages_ && request_->options.copies_messages && least_bytes != 0 && bytes >= least_bytes &&
         messages_->supports(bytes);
}

Status DeviceCopies::enqueue_messages(std::span<const Call> messages, void* stream,
                                      const std::function<Status()>& beside) {
  STRAIT_TRY(gate_.wait_if_closed(stream));
  std::vector<copy_engine::Message> ends;
  for (const Call& call : messages)
    ends.push_back({.sends = call.sends,
                    .peer = call.peer,
                    .data = static_cast<std::byte*>(call.sends ? const_cast<void*>(call.send) : call.receive),
                    .bytes = call.count * size_bytes(call.type),
                    .hash = hash_of(signature(call))});
  return messages_->enqueue(ends, stream, beside);
}

Status DeviceCopies::enqueue(const Call& call) {
  STRAIT_TRY(gate_.wait_if_closed(call.stream));
  return staged_ ? staged_->enqueue(copy_call_of(call), call.stream)
                 : peers_->enqueue(copy_call_of(call), hash_of(signature(call)), call.stream);
}

bool DeviceCopies::carries_in_place(const Call& call) const {
  if (!peers_ || !peers_->supports_in_place(copy_call_of(call)) || !call.receive_offsets.empty()) return false;
  const std::uint32_t max_sms = call.max_sms != 0 ? call.max_sms : request_->options.max_sms;
  const std::size_t least_bytes =
      request_->options.copy_engine_bytes != 0 && max_sms != no_sms
          ? request_->options.copy_engine_bytes
          : in_place_border_bytes(max_sms, request_->ranks, peers_->goes_in_chunks(copy_call_of(call)));
  return buffer_sizes(call, call.root, request_->ranks).receive_bytes >= least_bytes;
}

/// Ranks whose outputs are at different places must not meet.
std::uint32_t DeviceCopies::hash_at(const Call& call, const DeviceRegistrations::Place& place) {
  const auto distance = static_cast<std::uint64_t>(place.distance);
  return static_cast<std::uint32_t>(mix(mix(hash_of(signature(call)) ^ mix(place.frame)) ^ distance));
}

Status DeviceCopies::enqueue_in_place(const Call& call, const DeviceRegistrations::Place& place) {
  STRAIT_TRY(gate_.wait_if_closed(call.stream));
  return peers_->enqueue_in_place(copy_call_of(call), place.addresses, hash_at(call, place), call.stream);
}

void DeviceCopies::release_waits() {
  gate_.open();
  if (staged_) staged_->release_waits();
  if (peers_) peers_->release_waits();
  if (messages_) messages_->release_waits();
}

/// Calls run one after another, so at most one of these is waiting.
std::optional<copy_engine::Wait> DeviceCopies::wait() {
  std::optional<copy_engine::Wait> found;
  if (staged_) found = staged_->wait();
  if (!found && peers_) found = peers_->wait();
  if (!found && messages_) found = messages_->wait();
  return found;
}

void DeviceCopies::poll() {
  Watch& watch = *request_->watch;
  if (watch.has_failed()) return release_waits();
  const auto wait = this->wait();
  if (!wait) {
    told_ = {};
    return;
  }
  const std::string who = "a copy on " + watch.name_of(request_->rank);
  if (request_->timeout_ms != 0 && wait->duration.count() > request_->timeout_ms) {
    watch.raise_timeout(who, request_->timeout_ms, wait->rank);
  } else if (wait->duration - told_ > Watch::slow_wait) {
    told_ = wait->duration;
    if (!watch.has_gone(wait->rank)) return watch.tell_of_slow_wait(who, told_, wait->rank);
    // What that rank did before it went counts. It had done it all when it was seen to have gone.
    const auto still = this->wait();
    if (still && still->rank == wait->rank && still->duration >= wait->duration) watch.raise_gone(who, wait->rank);
  } else if (wait->duration < told_) {
    told_ = {};
  }
}

}  // namespace strait
