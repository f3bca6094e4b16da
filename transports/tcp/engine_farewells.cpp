// The last messages of an engine, and how long it waits until they have been received.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

constexpr std::int64_t goodbye_ms = 2000;
}  // namespace

/// Says goodbye. Peers may still need what this rank has published, so this waits until they have received it. Their
/// engines do so whatever the ranks are doing: it takes long only if a peer is stopped.
void Engine::say_goodbye() {
  const std::lock_guard lock(mutex_);
  const Deadline deadline = Deadline::after_ms(goodbye_ms);
  progress();
  if (say_last(FrameKind::left, deadline)) return;
  attempt([this] {
    log_warn(static_cast<int>(rank_),
             "a peer did not take this rank's last messages within 2 s: it is stopped or cut off");
  });
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
    const bool is_sending = ucx_ && ucx_->is_sending_to(static_cast<std::uint32_t>(&peer - peers_.data()));
    return !peer.socket.is_open() ||
           (!peer.socket.has_unsent() && peer.socket.unacknowledged_bytes() == 0 && !is_sending);
  };
  for (;;) {
    progress();
    if (std::all_of(peers_.begin(), peers_.end(), is_heard)) return true;
    if (deadline.expired()) return false;
    ::usleep(100);
  }
}

}  // namespace strait::tcp
