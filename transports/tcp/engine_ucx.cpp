// How an engine uses UCX: it carries the payloads of long messages, whose headers go by the TCP connections. So the
// death, failure or farewell of a rank is noticed as without UCX.
#include <algorithm>

#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

/// Shorter messages go by TCP, where the payload comes with the header.
constexpr std::size_t least_bytes_by_ucx = 16 << 10;

}  // namespace

bool Engine::goes_by_ucx(std::uint32_t rank, std::size_t bytes) const {
  return ucx_ && bytes >= least_bytes_by_ucx && ucx_->is_connected(rank) && ucx_->failure(rank).empty();
}

bool Engine::take_announced(std::uint32_t rank, const FrameHeader& frame) {
  Peer& peer = peers_[rank];
  std::byte* const at = place_of(peer, frame);
  if (!ucx_ || !ucx_->is_connected(rank) || at == nullptr) return false;
  Incoming& link = *peer.incoming.at(frame.stream);
  by_ucx_.reserve(by_ucx_.size() + 1);
  const std::size_t slot = link.announced % geometry_.depth;
  ucx_->receive(rank, {at, frame.payload_bytes}, link.has_arrived[slot]);
  link.signatures[slot] = {frame.a, frame.b};
  ++link.announced;
  by_ucx_.push_back(&link);
  return true;
}

/// Lets UCX make progress. If messages from or to a rank are or may be lost, the connection to it is ended, unless that
/// rank has left in good order. It may say so, or why it fails, in unread data of its socket, which is read first.
void Engine::drive_ucx() {
  attempt([this] {
    ucx_->progress();
    for (Incoming* link : by_ucx_) advance(*link);
    std::erase_if(by_ucx_, [](const Incoming* link) { return link->arrived == link->announced; });
    for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
      PeerSocket& socket = peers_[rank].socket;
      if (!socket.is_open() || !ucx_->has_lost(rank)) continue;
      socket.read();
      const bool has_left = controls_[rank].left.load(std::memory_order_relaxed) != 0;
      if (!has_left && !socket.has_unread()) socket.end(ucx_->failure(rank));
      settle(rank);
    }
  });
}

/// Whether UCX has nothing to do, and its descriptor will tell when it has.
bool Engine::may_sleep() {
  const std::lock_guard lock(mutex_);
  return !ucx_ || ucx_->prepare_sleep();
}

}  // namespace strait::tcp
