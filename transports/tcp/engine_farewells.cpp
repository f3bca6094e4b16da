// The last messages of an engine, and how long it waits until they have been received.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

constexpr std::int64_t goodbye_ms = 2000;
/// How long more a goodbye may take while a peer that lives has yet to take what is queued in this process. The system
/// delivers only what it has taken over; the rest would be lost, and the peer would be told that this rank is.
constexpr std::int64_t queued_ms = 60'000;
}  // namespace

/// Says goodbye. Peers may still need what this rank has published, so this waits until they have received it. Their
/// engines do so whatever the ranks are doing: it takes long only if a peer is stopped.
void Engine::say_goodbye() {
  const std::lock_guard lock(mutex_);
  const Deadline deadline = Deadline::after_ms(goodbye_ms);
  progress();
  if (say_last(FrameKind::left, deadline)) return;
  const auto warn = [this](const char* text) {
    attempt([&] { log_warn(static_cast<int>(rank_), std::string("a peer did not take this rank's last ") + text); });
  };
  // After a failure nobody needs the rest. A peer whose host does not answer is found out by progress().
  const auto is_over = [this] {
    return control_.abort.load() != 0 ||
           std::none_of(peers_.begin(), peers_.end(), [this](const Peer& peer) { return has_queued(peer); });
  };
  if (is_over()) return warn("messages within 2 s: it is stopped or cut off");
  warn("messages within 2 s: it is stopped or cut off. This rank waits for it for a minute, to lose no data");
  if (!await(is_over, Deadline::after_ms(queued_ms)))
    warn("messages within a minute. It does not get the rest, and will say that this rank's connection has ended");
}

/// Waits, because the system closes the connections of a process that ends, and unsent data may be lost. The caller may
/// be a signal handler that has interrupted the thread that holds the lock; then nothing is sent. For the lock it also
/// waits a little beyond the deadline: the engine's own thread holds it only for moments, and many engines may share
/// one deadline.
void Engine::announce_exit(const Deadline& deadline) {
  const Deadline for_lock = Deadline::after_ms(20);
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock && !(deadline.expired() && for_lock.expired())) {
    std::this_thread::yield();
    (void)lock.try_lock();
  }
  if (lock) say_last(FrameKind::exiting, deadline);
}

/// Sends a last frame to all peers. Returns whether all that are connected have received it by the deadline.
bool Engine::say_last(FrameKind what, const Deadline& deadline) {
  for (Peer& peer : peers_) peer.socket.queue_last({what, 0, 0, 0, 0});
  for (std::uint32_t other = 0; other < peers_.size(); ++other) mark_dirty(other);
  const auto is_heard = [this](const Peer& peer) {
    return !has_queued(peer) && (!peer.socket.is_open() || peer.socket.unacknowledged_bytes() == 0);
  };
  return await([&] { return std::all_of(peers_.begin(), peers_.end(), is_heard); }, deadline);
}

/// Returns whether something for this peer is still in this process.
bool Engine::has_queued(const Peer& peer) const {
  if (!peer.socket.is_open()) return false;
  const bool is_sending = ucx_ && ucx_->is_sending_to(static_cast<std::uint32_t>(&peer - peers_.data()));
  return peer.socket.has_unsent() || is_sending;
}

/// Drives the engine until the condition holds; returns false if it does not by the deadline.
bool Engine::await(const std::function<bool()>& condition, const Deadline& deadline) {
  for (;;) {
    progress();
    if (condition()) return true;
    if (deadline.expired()) return false;
    ::usleep(100);
  }
}

}  // namespace strait::tcp
