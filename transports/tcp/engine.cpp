#include "transports/tcp/engine.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/log.hpp"
#include "base/shortage.hpp"

namespace strait::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// One poll() of a peer in this many also does all other pending work.
constexpr std::uint32_t polls_per_round = 8;
/// How often the engine's thread checks whether the rank still drives the engine.
constexpr int look_in_ms = 1;
/// Bounds the delay until an abort is noticed: the control words may be written at any time, by any thread, without a
/// call to the engine.
constexpr int longest_sleep_ms = 20;
constexpr auto examine_every = milliseconds(250);
/// How long data that a process sent before its end may still arrive.
constexpr std::int64_t last_words_ms = 200;

/// User data of epoll events: one of these two tags, or a peer's rank, with pidfd_bit for its pidfd.
constexpr std::uint64_t wake_tag = ~std::uint64_t{0}, ucx_tag = wake_tag - 1;
constexpr std::uint64_t pidfd_bit = std::uint64_t{1} << 32;

Status watch(const UniqueFd& epoll, int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return fail_errno("cannot watch a connection (epoll_ctl)", errno, "Raise fs.epoll.max_user_watches");
}

}  // namespace

Engine::Engine(std::uint32_t rank, const Geometry& geometry, std::vector<MeshPeer> mesh)
    : rank_(rank),
      geometry_(geometry),
      controls_(std::make_unique<RankControl[]>(mesh.size())),
      peers_(mesh.size()),
      examined_(Clock::now()),
      owner_(::getpid()) {
  dirty_.reserve(2 * peers_.size());  // those of one round and those of the next
  for (std::uint32_t other = 0; other < mesh.size(); ++other) {
    if (other == rank_) continue;
    Peer& peer = peers_[other];
    peer.pidfd = std::move(mesh[other].pidfd);
    peer.is_near = mesh[other].socket.stays_on_host();
    peer.answered_at = examined_;
    peer.socket = PeerSocket(
        std::move(mesh[other].socket), std::move(mesh[other].unread), geometry_.slot_bytes,
        [this, &peer](const FrameHeader& frame) { return place_of(peer, frame); },
        [this, other](const FrameHeader& frame) { return take(other, frame); });
  }
}

Status Engine::start() {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return fail_errno("cannot make an eventfd", errno, descriptor_remedy(errno));
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno("cannot make an epoll instance", errno, descriptor_remedy(errno));
  STRAIT_TRY(watch(epoll_, wake_.get(), wake_tag));
  if (ucx_) STRAIT_TRY(watch(epoll_, ucx_->fd(), ucx_tag));
  for (std::uint32_t other = 0; other < peers_.size(); ++other) {
    Peer& peer = peers_[other];
    if (other == rank_) continue;
    STRAIT_TRY(watch(epoll_, peer.socket.fd(), other));
    if (peer.pidfd) STRAIT_TRY(watch(epoll_, peer.pidfd.get(), other | pidfd_bit));
    mark_dirty(other);  // so that what came with the handshake is handled
    peer.socket.read();
  }
  if (peers_.size() == 1) return {};
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return cannot_start_thread(error, "that serves the connections");
  }
  return {};
}

std::unique_ptr<std::byte[]> Engine::new_slots() const {
  // Not zeroed, so that pages are allocated only when messages fill them.
  return std::make_unique_for_overwrite<std::byte[]>(geometry_.depth * geometry_.slot_bytes);
}

Outgoing& Engine::outgoing(std::uint64_t stream, const std::vector<std::uint32_t>& readers) {
  if (const auto found = outgoing_.find(stream); found != outgoing_.end()) return *found->second;
  auto link = std::make_unique<Outgoing>();
  link->stream = stream;
  link->readers = readers;
  link->released.resize(readers.size());
  link->slots = new_slots();
  for (const std::uint32_t reader : readers) peers_[reader].socket.reserve(geometry_.depth);
  return *outgoing_.emplace(stream, std::move(link)).first->second;
}

Incoming& Engine::incoming(std::uint64_t stream, std::uint32_t writer) {
  Peer& peer = peers_[writer];
  if (const auto found = peer.incoming.find(stream); found != peer.incoming.end()) return *found->second;
  auto link = std::make_unique<Incoming>();
  link->stream = stream;
  link->writer = writer;
  link->slots = new_slots();
  link->signatures.resize(geometry_.depth);
  link->arrived_at.resize(geometry_.depth);
  link->has_arrived = std::make_unique<bool[]>(geometry_.depth);
  peer.unreported_releases.reserve(peer.incoming.size() + 1);
  peer.socket.reserve(geometry_.depth);
  return *peer.incoming.emplace(stream, std::move(link)).first->second;
}

void Engine::publish(Outgoing& link, const CallSignature& signature, std::span<const std::byte> bytes) {
  note_activity();
  std::byte* const slot = next_slot(link);
  ++link.next;
  FrameHeader header{FrameKind::slot, static_cast<std::uint32_t>(bytes.size()), link.stream, signature.what,
                     signature.count};
  for (const std::uint32_t reader : link.readers) {
    PeerSocket& socket = peers_[reader].socket;
    const bool by_ucx = goes_by_ucx(reader, bytes.size());
    header.kind = by_ucx ? FrameKind::announced : FrameKind::slot;
    // UCX may send later; the slot stays unchanged until then, the caller's memory may not.
    if (by_ucx && bytes.data() != slot) {
      std::copy(bytes.begin(), bytes.end(), slot);
      bytes = {slot, bytes.size()};
    }
    attempt([&] {
      socket.queue(header, by_ucx ? std::span<const std::byte>() : bytes);
      if (by_ucx) ucx_->send(reader, bytes);
    });
    flush(reader);
    if (bytes.data() != slot) socket.move_unsent(bytes, slot);
  }
}

void Engine::release(Incoming& link) {
  note_activity();
  Peer& peer = peers_[link.writer];
  if (link.released++ == link.reported) {
    peer.unreported_releases.push_back(&link);
    mark_dirty(link.writer);
  }
  // The writer need not know yet, so this can be sent with the next message. But the writer must not run out of slots,
  // so it is sent alone when half of them are released.
  if (link.released - link.reported >= geometry_.depth / 2) flush(link.writer);
}

void Engine::abandon_places() {
  for (Peer& peer : peers_)
    for (auto& [stream, link] : peer.incoming)
      if (const std::span<std::byte> place = std::exchange(link->place, {}); !place.empty())
        peer.socket.move_arriving(place, slot_of(*link));
}

void Engine::signal(std::uint64_t stream, std::uint32_t to) {
  note_activity();
  attempt([&] {
    if (to == rank_)
      ++peers_[rank_].signals[stream];
    else
      peers_[to].socket.queue({FrameKind::signal, 0, stream, 0, 0});
  });
  if (to != rank_) flush(to);
}

void Engine::post(std::uint64_t sequence, const CallSignature& signature) {
  note_activity();
  const FrameHeader header{FrameKind::call, 0, sequence, signature.what, signature.count};
  take_call(rank_, header);
  // Sent with the first message of the operation, or when this rank has nothing else to do.
  for (std::uint32_t other = 0; other < peers_.size(); ++other) {
    if (other == rank_) continue;
    peers_[other].socket.queue(header);
    mark_dirty(other);
  }
}

bool Engine::has_peer_calls(std::uint64_t sequence) {
  const auto known = [&] {
    return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return peer.posted >= sequence || (!peer.socket.is_open() && &peer != &peers_[rank_]);
    });
  };
  if (known()) {
    flush_dirty();  // other ranks also wait for this rank's call, which may still be unsent
    return true;
  }
  note_activity();
  progress();
  return known() && !is_short_of_memory_;
}

void Engine::poll(std::uint32_t rank) {
  note_activity();
  if (rank != rank_) {
    attempt([&] {
      peers_[rank].socket.read();
      settle(rank);
    });
  }
  if (++polls_ % polls_per_round == 0)
    progress();
  else if (ucx_ && ucx_->is_busy())
    drive_ucx();
}

void Engine::poll_all() {
  for (std::uint32_t rank = 0; rank < peers_.size(); ++rank)
    if (rank != rank_) poll(rank);
}

void Engine::mark_dirty(std::uint32_t rank) {
  if (std::exchange(peers_[rank].is_dirty, true)) return;
  dirty_.push_back(rank);
}

void Engine::flush(std::uint32_t rank) {
  attempt([&] { report_releases(peers_[rank]); });
  send(rank);
}

void Engine::report_releases(Peer& peer) {
  for (Incoming* link : peer.unreported_releases) {
    link->reported = link->released;
    peer.socket.queue({FrameKind::released, 0, link->stream, link->released, 0});
  }
  peer.unreported_releases.clear();
}

void Engine::send(std::uint32_t rank) {
  attempt([&] {
    peers_[rank].socket.flush();
    settle(rank);
  });
}

/// Adapts the epoll set, and `has_died`, to the state of the socket. Called after reading or writing.
void Engine::settle(std::uint32_t rank) {
  Peer& peer = peers_[rank];
  if (!peer.socket.is_open()) {
    if (std::exchange(peer.is_down, true)) return;
    if (controls_[rank].left.load(std::memory_order_relaxed) != 0) return;
    peer.has_died.store(true, std::memory_order_release);
    log_info(static_cast<int>(rank_),
             "the connection to rank " + std::to_string(rank) + " ended: " + peer.socket.end_reason());
    return;
  }
  const bool is_short = peer.socket.take_shortage();
  if (is_short) {
    has_shortage_ = true;
    mark_dirty(rank);
  }
  if ((peer.socket.has_unsent() && !is_short) == peer.waits_for_room) return;
  peer.waits_for_room = !peer.waits_for_room;
  epoll_event event{};
  event.events = peer.waits_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = rank;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.socket.fd(), &event);
}

void Engine::flush_dirty() {
  // Peers that are marked again meanwhile are for the next round.
  const std::size_t marked = dirty_.size();
  for (std::size_t i = 0; i < marked; ++i) {
    peers_[dirty_[i]].is_dirty = false;
    flush(dirty_[i]);
  }
  dirty_.erase(dirty_.begin(), dirty_.begin() + static_cast<std::ptrdiff_t>(marked));
}

void Engine::progress() {
  progressed_.fetch_add(1, std::memory_order_relaxed);
  has_shortage_ = false;
  if (control_.abort.load(std::memory_order_acquire) != 0 && !error_told_) tell_error();
  flush_dirty();
  if (ucx_) drive_ucx();
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.u64);
  if (const auto since = Clock::now() - examined_; since >= examine_every || next_death_.expired()) {
    examined_ += since;
    attempt([&] { examine_peers(std::max<Clock::duration>(since - examine_every, {})); });
  }
}

void Engine::handle(std::uint64_t tag) {
  if (tag == wake_tag || tag == ucx_tag) return;  // these only wake the engine's thread
  const auto rank = static_cast<std::uint32_t>(tag);
  Peer& peer = peers_[rank];
  if ((tag & pidfd_bit) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.pidfd.get(), nullptr);
    peer.death = Deadline::after_ms(last_words_ms);
    next_death_ = earlier(next_death_, peer.death);
    return;
  }
  attempt([&] { peer.socket.read(); });
  send(rank);
}

void Engine::note_activity() {
  // Sequentially consistent, as is asleep_: either run() sees the new count before it sleeps, or this thread sees that
  // it is asleep.
  activity_.fetch_add(1);
  if (asleep_.load() && asleep_.exchange(false)) wake();
}

void Engine::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Engine::take_wake() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
}

void Engine::run() {
  std::uint64_t seen = 0, progressed = 0;
  while (!stopping_.load()) {
    bool is_short = false;
    std::uint64_t activity = activity_.load();
    // Activity of the rank alone does not mean that it drives the engine: it may send to one peer again and again
    // without waiting. And after a failure the others must hear of it now, not with this rank's farewell.
    if (activity == seen || progressed_.load(std::memory_order_relaxed) == progressed || control_.abort.load() != 0) {
      {
        const std::lock_guard lock(mutex_);
        progress();
        is_short = is_short_of_memory_ || has_shortage_;
      }
      activity = activity_.load();
    }
    progressed = progressed_.load(std::memory_order_relaxed);
    // What could not be read for lack of memory stays in a socket, and would end a sleep on the sockets immediately.
    if (std::exchange(seen, activity) != activity || is_short) {
      pollfd wakes{wake_.get(), POLLIN, 0};
      ::poll(&wakes, 1, look_in_ms);
      take_wake();
      continue;
    }
    asleep_.store(true);
    if (activity_.load() == seen && may_sleep()) {
      epoll_event event{};
      ::epoll_wait(epoll_.get(), &event, 1, longest_sleep_ms);
    }
    asleep_.store(false);
    take_wake();  // a pending wake would end the next sleep immediately
  }
}

Engine::~Engine() {
  if (owner_ != ::getpid()) {  // a forked child has a copy of this object, but neither the thread nor the connections
    if (thread_.joinable()) thread_.detach();
    (void)ucx_.release();  // its threads and connections are the parent's, too
    return;
  }
  if (thread_.joinable()) {
    stopping_.store(true);
    wake();
    thread_.join();
    say_goodbye();
  }
  ucx_.reset();  // before the slots, which it may still access
}

}  // namespace strait::tcp
