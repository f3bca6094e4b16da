// What an engine does with the frames that arrive.
#include <algorithm>

#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

/// Limits, so that a peer cannot make this rank allocate without end.
constexpr std::size_t most_links_of_a_peer = 4096;
constexpr std::size_t most_signals_of_a_peer = 1 << 16;  // as many as there are tags

}  // namespace

std::byte* Engine::place_of(Peer& peer, const FrameHeader& frame) {
  if (frame.kind == FrameKind::error) return reinterpret_cast<std::byte*>(peer.error_text.data());
  if (peer.incoming.size() >= most_links_of_a_peer && !peer.incoming.contains(frame.stream)) return nullptr;
  Incoming& link = incoming(frame.stream, static_cast<std::uint32_t>(&peer - peers_.data()));
  if (link.announced - link.released >= geometry_.depth) return nullptr;  // more messages than slots
  // A payload by UCX may arrive at any time, even when the caller's memory no longer belongs to the link: it always
  // goes to a slot.
  const bool is_awaited = frame.kind == FrameKind::slot && link.announced == link.released &&
                          link.place.size() == frame.payload_bytes && link.expected == CallSignature{frame.a, frame.b};
  std::byte* const at = is_awaited && frame.payload_bytes != 0 ? link.place.data() : slot_of(link);
  link.arrived_at[link.announced % geometry_.depth] = at;
  return at;
}

bool Engine::take(std::uint32_t rank, const FrameHeader& frame) {
  Peer& peer = peers_[rank];
  switch (frame.kind) {
    case FrameKind::slot:
      return take_slot(peer, frame);
    case FrameKind::announced:
      return take_announced(rank, frame);
    case FrameKind::released:
      return take_released(rank, frame);
    case FrameKind::signal:
      return take_signal(peer, frame.stream);
    case FrameKind::call:
      take_call(rank, frame);
      return true;
    case FrameKind::error:
      take_error(rank, frame);
      return true;
    case FrameKind::left:
      controls_[rank].left.store(1, std::memory_order_release);
      return true;
    case FrameKind::exiting:
      controls_[rank].exiting.store(1, std::memory_order_release);
      return true;
  }
  return false;
}

bool Engine::take_slot(Peer& peer, const FrameHeader& frame) {
  if (frame.payload_bytes == 0 && place_of(peer, frame) == nullptr) return false;
  Incoming& link = *peer.incoming.at(frame.stream);
  const std::size_t slot = link.announced++ % geometry_.depth;
  link.signatures[slot] = {frame.a, frame.b};
  link.has_arrived[slot] = true;
  advance(link);
  return true;
}

void Engine::advance(Incoming& link) const {
  while (link.arrived < link.announced && link.has_arrived[link.arrived % geometry_.depth]) ++link.arrived;
}

bool Engine::take_signal(Peer& peer, std::uint64_t stream) {
  if (peer.signals.size() >= most_signals_of_a_peer && !peer.signals.contains(stream)) return false;
  ++peer.signals[stream];
  return true;
}

bool Engine::take_released(std::uint32_t rank, const FrameHeader& frame) {
  const auto found = outgoing_.find(frame.stream);
  if (found == outgoing_.end()) return false;
  Outgoing& link = *found->second;
  const auto reader = std::find(link.readers.begin(), link.readers.end(), rank);
  if (reader == link.readers.end()) return false;
  std::uint64_t& released = link.released[static_cast<std::size_t>(reader - link.readers.begin())];
  if (frame.a <= released || frame.a > link.next) return false;
  released = frame.a;
  return true;
}

void Engine::take_call(std::uint32_t rank, const FrameHeader& frame) {
  write_call(controls_[rank], frame.stream, {{frame.a, frame.b}, 0, 0});
  peers_[rank].posted = frame.stream;
}

/// Records a peer's error, unless that peer's error is recorded already.
void Engine::take_error(std::uint32_t rank, const FrameHeader& frame) {
  Peer& peer = peers_[rank];
  peer.error_text[frame.payload_bytes] = '\0';
  std::uint32_t empty = 0;
  if (!controls_[rank].raised.state.compare_exchange_strong(empty, 1)) return;
  write_error(control_, controls_[rank], rank, static_cast<std::uint32_t>(frame.a), peer.error_text.data());
}

}  // namespace strait::tcp
