// What an engine does if memory runs out, the communicator has failed or a peer is gone.
#include <linux/tcp.h>  // netinet/tcp.h lacks the newer half of tcp_info
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Together with TCP's retransmissions until then and the interval between two checks, this stays below 5 s.
constexpr auto silence_limit = milliseconds(3500);

}  // namespace

/// Makes the communicator fail, without allocating memory. The next progress() tells the peers.
void Engine::run_short_of_memory() noexcept {
  is_short_of_memory_ = true;
  std::uint32_t empty = 0;
  if (!controls_[rank_].raised.state.compare_exchange_strong(empty, 1)) return;
  write_error(control_, controls_[rank_], rank_, static_cast<std::uint32_t>(Code::out_of_memory),
              "no memory left for what ranks send one another. Check the limit of address space (ulimit -v) and the "
              "memory limit of the container");
}

void Engine::tell_error() {
  error_told_ = true;
  const ErrorRecord& error = controls_[control_.abort.load(std::memory_order_acquire) - 1].raised;
  const std::string_view text(error.message);
  for (std::uint32_t other = 0; other < peers_.size(); ++other) {
    if (other == rank_) continue;
    const FrameHeader header{FrameKind::error, static_cast<std::uint32_t>(text.size()), 0, error.code, 0};
    peers_[other].socket.queue_last(header, std::as_bytes(std::span(text)));
    mark_dirty(other);
  }
}

/// Ends the connections to peers whose process is gone or whose host is silent. `unseen`: by how much this check is
/// late, because this process did not run.
void Engine::examine_peers(Clock::duration unseen) {
  next_death_ = Deadline::never();
  for (std::uint32_t other = 0; other < peers_.size(); ++other) {
    Peer& peer = peers_[other];
    if (other == rank_ || !peer.socket.is_open()) continue;
    if (peer.death.expired()) peer.socket.end("its process is gone");
    if (is_silent(peer, unseen)) peer.socket.end("its host has not answered for 3.5 s");
    if (peer.socket.is_open()) next_death_ = earlier(next_death_, peer.death);
    settle(other);
  }
}

/// Whether the peer's host (not its process, which may be stopped) has left unanswered for too long what was sent to
/// it. Does not apply to a peer at this rank's own address: the end of its process closes its connections or is noticed
/// otherwise, and a late answer means only that the machine is overloaded. Time in which this process did not look
/// (`unseen`) does not count, because it may have missed answers.
bool Engine::is_silent(Peer& peer, Clock::duration unseen) const {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (!peer.socket.is_open() || peer.is_near) return false;
  if (::getsockopt(peer.socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  peer.answered_at += unseen;
  // The window of a stopped process closes eventually, and the data that it holds back is no sign of a failure. Data
  // that is held back although the window is open cannot get out of this host.
  const bool is_kept_back = info.tcpi_notsent_bytes > 0 && info.tcpi_snd_wnd > info.tcpi_snd_mss;
  const bool is_owed = info.tcpi_unacked > 0 || is_kept_back;
  // An acknowledgement without progress counts, too: a host whose buffers are full drops data, but answers.
  const auto answered_at = Clock::now() - milliseconds(info.tcpi_last_ack_recv);
  peer.answered_at = is_owed ? std::max(peer.answered_at, answered_at) : Clock::now();
  return Clock::now() - peer.answered_at > silence_limit;
}

}  // namespace strait::tcp
