// What an engine says last, and how long it waits until that has been heard.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

constexpr std::int64_t goodbye_ms = 2000;
}  // namespace

/// The peers may still need what this rank has published. Their engines take it in whatever they do, so this takes long
/// only where a peer is stopped.
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

/// The system closes the connections of a process that ends, and what it has not sent by then may be lost. Who ends it
/// may have interrupted a thread that holds the lock, and then does without.
void Engine::say_ended(const Deadline& deadline) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock && !deadline.expired()) {
    std::this_thread::yield();
    (void)lock.try_lock();
  }
  if (lock) say_last(FrameKind::ended, deadline);
}

/// Whether all who are there have heard it in time.
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
