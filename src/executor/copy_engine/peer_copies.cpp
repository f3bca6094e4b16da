#include "executor/copy_engine/peer_copies.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace strait::copy_engine {
namespace {

constexpr auto poll_interval = std::chrono::microseconds(200);

}  // namespace

Result<std::unique_ptr<PeerCopies>> PeerCopies::open(Setup setup) {
  if (setup.ranks < 2 || setup.ranks > kernels::max_ranks || setup.rank >= setup.ranks)
    return fail(Code::invalid_argument, "rank " + std::to_string(setup.rank) + " of " + std::to_string(setup.ranks) +
                                            ": copies between GPUs are for 2 to " + std::to_string(kernels::max_ranks) +
                                            " ranks");
  if (setup.window_bytes != 0 && setup.window_bytes < 2 * depth * grain_bytes)
    return fail(Code::invalid_argument,
                "windows of " + std::to_string(setup.window_bytes) + " bytes are too small for copies between GPUs");
  std::unique_ptr<PeerCopies> copies(new PeerCopies(std::move(setup)));
  STRAIT_TRY(copies->prepare());
  return copies;
}

std::vector<Lane*> PeerCopies::lanes_of(bool contributes, std::size_t sending, bool receives) {
  std::vector<Lane*> lanes;
  const auto take = [&](Lanes& all, std::size_t used) {
    for (std::size_t lane = 0; lane < used; ++lane) lanes.push_back(&all[lane]);
  };
  take(contributions_, contributes ? contributions_.size() : 0);
  take(messages_, sending);
  take(pulls_, receives ? pulls_.size() : 0);
  return lanes;
}

Status PeerCopies::prepare() {
  contributions_.resize(setup_.window_bytes != 0 ? PeerWords::lanes : 0);
  messages_.resize(std::max(setup_.ranks - 1, PeerWords::lanes));
  pulls_.resize(PeerWords::lanes);
  for (Lane* lane : all_lanes()) STRAIT_TRY(lane->open(*setup_.driver));
  STRAIT_ASSIGN(begun_, setup_.driver->create_event());
  return {};
}

/// Returns how many of `messages_` a call uses.
std::size_t PeerCopies::message_lanes(const PeerTraffic& traffic, const Cut& cut) const {
  return traffic.is_passed_on ? setup_.ranks - 1 : std::min<std::size_t>(PeerWords::lanes, cut.chunks);
}

/// Returns which of them carries a chunk to the rank that is `after` ranks behind this one.
std::size_t PeerCopies::message_lane(const PeerTraffic& traffic, std::uint32_t after, std::uint32_t chunk) const {
  return traffic.is_passed_on ? after - 1 : chunk % PeerWords::lanes;
}

PeerCopies::~PeerCopies() {
  StreamDriver& driver = *setup_.driver;
  for (Lane* lane : all_lanes())
    while (!lane->is_idle(driver)) {
      if (setup_.has_failed()) release_waits();
      std::this_thread::sleep_for(poll_interval);
    }
  for (Lane* lane : all_lanes()) lane->close(driver);
  if (begun_ != nullptr) driver.destroy_event(begun_);
}

Status PeerCopies::enqueue(const CopyCall& call, std::uint32_t hash, StreamDriver::Stream stream) {
  if (!supports(call))
    return fail(Code::unsupported, std::string(name(call.collective)) + " of " + std::to_string(call.count) +
                                       " elements by copies between GPUs");
  const std::size_t most = most_elements(call);
  CopyCall part = call;
  for (std::size_t first = 0; first < call.count; first += part.count) {
    const std::size_t offset = first * size_bytes(call.type);
    part.count = std::min(most, call.count - first);
    part.send = static_cast<const std::byte*>(call.send) + offset;
    if (call.receive != nullptr) part.receive = static_cast<std::byte*>(call.receive) + offset;
    STRAIT_TRY(enqueue_part(part, std::max(hash, 1u), stream));  // 0 means none
  }
  return {};
}

/// The result is the same on all ranks.
bool PeerCopies::supports(const CopyCall& call) const {
  if (setup_.window_bytes == 0 || !PeerTraffic::supports(call)) return false;
  CopyCall part = call;
  part.count = std::min(most_elements(call), call.count);
  const std::size_t parts = (call.count + part.count - 1) / part.count;
  const std::size_t chunks = cut(PeerTraffic::of(part, setup_.rank, setup_.ranks)).chunks;
  return parts * chunks * (setup_.ranks - 1) <= most_chunks;
}

/// A rank's slice of a reduce must fit into that half of a window in which messages arrive.
std::size_t PeerCopies::most_elements(const CopyCall& call) const {
  if (call.collective != Collective::reduce) return call.count;
  return setup_.window_bytes / 2 / grain_bytes * grain_bytes / size_bytes(call.type) * setup_.ranks;
}

Status PeerCopies::enqueue_part(const CopyCall& call, std::uint32_t hash, StreamDriver::Stream stream) {
  PeerTraffic traffic = PeerTraffic::of(call, setup_.rank, setup_.ranks);
  const Cut parts = cut(traffic);
  if (traffic.adds() && traffic.sums == nullptr)
    traffic.place_sums(setup_.windows_here[call.root] + parts.messages_begin);
  STRAIT_TRY(begin(hash, stream));
  // The kernel is launched first: a stream that shares its hardware queue must not wait for it before it has been
  // enqueued. The lanes fork from the point before the kernel, because the kernel waits for them.
  if (traffic.adds()) STRAIT_TRY(launch_reduction(call, traffic, parts, stream));
  const std::vector<Lane*> lanes =
      lanes_of(PeerTraffic::has(traffic.contributions),
               PeerTraffic::has(traffic.sends) ? message_lanes(traffic, parts) : 0, PeerTraffic::has(traffic.receives));
  STRAIT_TRY(fork(hash, stream, lanes));
  STRAIT_TRY(move(traffic, parts));
  STRAIT_TRY(join(lanes, stream));
  return end(traffic, stream);
}

PeerCopies::Cut PeerCopies::cut_into(std::size_t bytes, std::size_t wanted_chunks, std::size_t largest_bytes) {
  const std::size_t wanted = (bytes / wanted_chunks + grain_bytes - 1) / grain_bytes * grain_bytes;
  Cut parts;
  parts.chunk_bytes = std::min(largest_bytes, std::max(wanted, least_chunk_bytes));
  parts.chunks = static_cast<std::uint32_t>((bytes + parts.chunk_bytes - 1) / parts.chunk_bytes);
  return parts;
}

PeerCopies::Cut PeerCopies::cut(const PeerTraffic& traffic) const {
  const std::size_t slots = depth * (traffic.sends_sums ? 2 : 1);
  constexpr std::size_t most_of_add = std::size_t{1} << 30;  // the kernel counts a chunk's bytes in 32 bits
  Cut parts = cut_into(traffic.longest_bytes, wanted_chunks,
                       std::min(setup_.window_bytes / slots / grain_bytes * grain_bytes, most_of_add));
  parts.messages_begin = traffic.sends_sums ? depth * parts.chunk_bytes : 0;
  return parts;
}

Status PeerCopies::begin(std::uint32_t hash, StreamDriver::Stream stream) {
  const std::uint32_t own = setup_.rank;
  Lane on{.stream = stream};
  tell(on, words_.running(own), hash);
  for (std::uint32_t k = 1; k < setup_.ranks; ++k) tell(on, words_.begun((own + k) % setup_.ranks, own), hash);
  STRAIT_TRY(flush(on));
  return setup_.driver->record(begun_, stream);
}

/// The waits for the other ranks are given to the driver together with what a lane waits for next.
Status PeerCopies::fork(std::uint32_t hash, StreamDriver::Stream from, std::span<Lane* const> lanes) {
  STRAIT_ASSIGN(const StreamState calls, setup_.driver->look_at(from));
  for (Lane* lane : lanes) {
    STRAIT_TRY(lane->fork(*setup_.driver, begun_, calls.capture_id));
    for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer)
      if (peer != setup_.rank)
        lane->operations.push_back({.kind = MemoryOperation::Kind::wait_equal,
                                    .word = setup_.device_words + words_.begun(setup_.rank, peer),
                                    .value = hash});
  }
  return {};
}

Status PeerCopies::join(std::span<Lane* const> lanes, StreamDriver::Stream to) {
  for (Lane* lane : lanes) STRAIT_TRY(lane->join(*setup_.driver, to));
  return {};
}

/// Every write takes time, so only words that this call has used are cleared.
Status PeerCopies::end(const PeerTraffic& traffic, StreamDriver::Stream stream) {
  const std::uint32_t own = setup_.rank, ranks = setup_.ranks;
  Lane on{.stream = stream};
  clear(on, words_.begun(own, 0), ranks);
  for (std::uint32_t k = 1; k < ranks; ++k) tell(on, words_.done((own + k) % ranks, own), 1);
  for (std::uint32_t peer = 0; peer < ranks; ++peer)
    if (peer != own) wait_for(on, words_.done(own, peer), 1);
  if (PeerTraffic::has(traffic.sends) || PeerTraffic::has(traffic.receives)) {
    clear(on, words_.arrived_count(own, 0, 0), ranks * PeerWords::lanes);
    clear(on, words_.taken_count(own, 0, 0), ranks * PeerWords::lanes);
  }
  for (std::uint32_t peer = 0; peer < ranks; ++peer)
    if (peer != own && traffic.overwrites(peer)) clear(on, words_.sent_count(own, peer, 0), PeerWords::lanes);
  if (PeerTraffic::has(traffic.contributions) || traffic.adds()) clear(on, words_.added_count(own, 0), ranks);
  for (std::uint32_t peer = 0; peer < ranks && traffic.adds(); ++peer)
    if (peer != own)
      on.operations.push_back(
          {.kind = MemoryOperation::Kind::clear_pair, .word = setup_.contributed_here[peer], .value = 0});
  clear(on, words_.done(own, 0), ranks);  // last, because running() is one of them
  return flush(on);
}

Status PeerCopies::launch_reduction(const CopyCall& call, const PeerTraffic& traffic, const Cut& cut,
                                    StreamDriver::Stream stream) {
  kernels::Add add{};
  const auto word = [&](std::size_t offset) { return reinterpret_cast<std::uint32_t*>(setup_.device_words + offset); };
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    add.windows[peer] = setup_.windows_here[peer];
    add.contributed[peer] = setup_.contributed_here[peer];
    add.added[peer] = word(words_.added_count(peer, setup_.rank));
  }
  add.input = traffic.addends.data;
  add.output = traffic.sums;
  add.bytes = traffic.addends.bytes;
  add.chunk_bytes = static_cast<std::uint32_t>(cut.chunk_bytes);
  add.depth = depth;
  add.op = call.op;
  add.type = call.type;
  return setup_.launch(call, add, stream);
}

/// Contributions run ahead of sums, and both run ahead of pulls. But no command is enqueued before one that it waits
/// for, on this rank or another, because on streams that share one hardware queue that would deadlock.
Status PeerCopies::move(const PeerTraffic& traffic, const Cut& cut) {
  constexpr std::uint32_t sums_after = depth / 2, pulls_after = depth / 2 + 1;
  const PeerTraffic::Span &own_from = traffic.sends[setup_.rank], &own_to = traffic.receives[setup_.rank];
  if (own_from.bytes != 0 && own_from.data != own_to.data)
    STRAIT_TRY(
        setup_.driver->copy({.to = own_to.data, .from = own_from.data, .row_bytes = own_from.bytes}, pulls_[1].stream));
  const std::uint32_t lag = traffic.relayed ? 1 : 0;
  for (std::uint32_t step = 0; step < cut.chunks + pulls_after + lag; ++step) {
    // Chunk numbers beyond the last one are ignored.
    STRAIT_TRY(push(Kind::contribution, traffic, cut, step));
    if (traffic.relayed && step >= sums_after) STRAIT_TRY(pull(traffic, cut, step - sums_after, true));
    if (step >= sums_after + lag) STRAIT_TRY(push(Kind::message, traffic, cut, step - sums_after - lag));
    if (step >= pulls_after + lag) STRAIT_TRY(pull(traffic, cut, step - pulls_after - lag, false));
  }
  return {};
}

/// Sends to one peer after the other. Each rank begins with the rank after it, so no two use the same link at once.
Status PeerCopies::push(Kind kind, const PeerTraffic& traffic, const Cut& cut, std::uint32_t chunk) {
  const bool contributes = kind == Kind::contribution;
  const PeerTraffic::Spans& spans = contributes ? traffic.contributions : traffic.sends;
  const std::uint32_t own = setup_.rank, parity = chunk % PeerWords::lanes, slot = chunk % depth;
  for (std::uint32_t k = 1; k < setup_.ranks; ++k) {
    const std::uint32_t peer = (own + k) % setup_.ranks;
    if (!spans[peer].has_chunk(cut.chunk_bytes, chunk)) continue;
    const PeerTraffic::Span piece = spans[peer].chunk(cut.chunk_bytes, chunk);
    std::byte* const window = setup_.windows_there[peer] + (contributes ? 0 : cut.messages_begin);
    Lane& lane = contributes ? contributions_[parity] : messages_[message_lane(traffic, k, chunk)];
    if (chunk >= depth) {  // the slot's previous chunk must have been taken out
      const std::uint32_t out = chunk - depth + 1;
      wait_for(lane, contributes ? words_.added_count(own, peer) : words_.taken_count(own, peer, parity), out);
    }
    if (!contributes && traffic.sends_sums) wait_for(lane, words_.added_count(own, own), chunk + 1);
    if (!contributes && traffic.relayed) wait_for(lane, words_.taken_count(own, own, parity), chunk + 1);
    STRAIT_TRY(flush(lane));
    STRAIT_TRY(setup_.driver->copy(
        {.to = window + slot * cut.chunk_bytes, .from = piece.data, .row_bytes = piece.bytes}, lane.stream));
    if (contributes)
      tell(lane, setup_.contributed_there[peer] + parity, chunk + 1);
    else
      tell(lane, words_.arrived_count(peer, own, parity), chunk + 1);
    if (!contributes && traffic.overwrites(peer)) tell(lane, words_.sent_count(own, peer, parity), chunk + 1);
    STRAIT_TRY(flush(lane));
  }
  return {};
}

/// `relayed`: pulls what is to be passed on, otherwise everything else.
Status PeerCopies::pull(const PeerTraffic& traffic, const Cut& cut, std::uint32_t chunk, bool relayed) {
  const std::uint32_t own = setup_.rank, parity = chunk % PeerWords::lanes, slot = chunk % depth;
  Lane& lane = pulls_[parity];
  std::vector<RowCopy> copies;
  std::vector<std::uint32_t> peers;
  for (std::uint32_t k = 1; k < setup_.ranks; ++k) {
    const std::uint32_t peer = (own + setup_.ranks - k) % setup_.ranks;  // in the order in which they send
    if (!traffic.receives[peer].has_chunk(cut.chunk_bytes, chunk) || (traffic.relayed == peer) != relayed) continue;
    const PeerTraffic::Span piece = traffic.receives[peer].chunk(cut.chunk_bytes, chunk);
    const std::byte* const window = setup_.windows_here[peer] + cut.messages_begin;
    wait_for(lane, words_.arrived_count(own, peer, parity), chunk + 1);
    if (traffic.overwrites(peer)) wait_for(lane, words_.sent_count(own, peer, parity), chunk + 1);
    copies.push_back({.to = piece.data, .from = window + slot * cut.chunk_bytes, .row_bytes = piece.bytes});
    peers.push_back(peer);
  }
  if (copies.empty()) return {};
  STRAIT_TRY(flush(lane));
  for (const RowCopy& copy : copies) STRAIT_TRY(setup_.driver->copy(copy, lane.stream));
  for (const std::uint32_t peer : peers) tell(lane, words_.taken_count(peer, own, parity), chunk + 1);
  if (relayed) tell(lane, words_.taken_count(own, own, parity), chunk + 1);
  return flush(lane);
}

void PeerCopies::wait_for(Lane& lane, std::size_t word, std::uint32_t value) const {
  lane.operations.push_back(
      {.kind = MemoryOperation::Kind::wait_at_least, .word = setup_.device_words + word, .value = value});
}

void PeerCopies::tell(Lane& lane, std::size_t word, std::uint32_t value) const {
  tell(lane, reinterpret_cast<std::uint32_t*>(setup_.device_words + word), value);
}

void PeerCopies::tell(Lane& lane, std::uint32_t* word, std::uint32_t value) {
  lane.operations.push_back({.kind = MemoryOperation::Kind::write, .word = word, .value = value});
}

/// Clears words of this rank's region, in pairs; the first one must have an even number.
void PeerCopies::clear(Lane& lane, std::size_t word, std::uint32_t words) const {
  for (std::uint32_t pair = 0; pair < words; pair += 2)
    lane.operations.push_back({.kind = MemoryOperation::Kind::clear_pair,
                               .word = setup_.device_words + word + pair * sizeof(std::uint32_t),
                               .value = 0});
}

std::atomic_ref<std::uint32_t> PeerCopies::host_word(std::size_t word) const {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(setup_.host_words + word));
}

/// The value for which streams wait in begun() is known only while the call runs, which is when they wait for it.
void PeerCopies::release_waits() {
  const std::uint32_t own = setup_.rank;
  const std::uint32_t hash = host_word(words_.running(own)).load(std::memory_order_acquire);
  const auto release = [&](std::size_t word, std::uint32_t value) {
    host_word(word).store(value, std::memory_order_release);
  };
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    for (std::uint32_t lane = 0; lane < PeerWords::lanes; ++lane) {
      release(words_.arrived_count(own, peer, lane), PeerWords::most);
      release(words_.taken_count(own, peer, lane), PeerWords::most);
      release(words_.sent_count(own, peer, lane), PeerWords::most);
    }
    release(words_.added_count(own, peer), PeerWords::most);
    if (peer == own) continue;  // running() must stay
    release(words_.begun(own, peer), hash);
    release(words_.done(own, peer), PeerWords::most);
  }
}

/// Measures what a peer has told this rank about the call with that hash. A peer that is done counts as ahead of all
/// that are not, and one that has begun as ahead of all that have not.
std::uint64_t PeerCopies::progress_of(std::uint32_t peer, std::uint32_t hash) const {
  constexpr std::uint64_t has_begun = std::uint64_t{1} << 40, is_done = std::uint64_t{1} << 50;
  const std::uint32_t own = setup_.rank;
  const auto value = [&](std::size_t word) { return host_word(word).load(std::memory_order_relaxed); };
  std::uint64_t sum = value(words_.added_count(own, peer));
  for (std::uint32_t lane = 0; lane < PeerWords::lanes; ++lane)
    sum += value(words_.arrived_count(own, peer, lane)) + value(words_.taken_count(own, peer, lane)) +
           value(words_.sent_count(own, peer, lane));
  if (peer == own) return sum;
  if (value(words_.begun(own, peer)) == hash) sum += has_begun;
  return value(words_.done(own, peer)) != 0 ? sum + is_done : sum;
}

std::optional<Wait> PeerCopies::wait() {
  const std::uint32_t hash = host_word(words_.running(setup_.rank)).load(std::memory_order_relaxed);
  if (hash == 0) {
    standstill_.reset();
    return std::nullopt;
  }
  const bool has_ended = host_word(words_.looked_at(setup_.rank)).exchange(1, std::memory_order_relaxed) == 0;
  if (has_ended) standstill_.reset();
  std::uint64_t all = 0, least = ~std::uint64_t{0};
  std::uint32_t last = setup_.rank;
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    const std::uint64_t progress = progress_of(peer, hash);
    all += progress;
    if (peer == setup_.rank || progress >= least) continue;
    least = progress;
    last = peer;
  }
  return Wait{.duration = standstill_.look(all), .rank = last};
}

}  // namespace strait::copy_engine
