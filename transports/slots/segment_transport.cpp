#include "transports/slots/segment_transport.hpp"

#include <algorithm>
#include <string>

#include "transports/slots/slot_link.hpp"

namespace strait::slots {

SegmentTransport::SegmentTransport(std::string_view name, Segment segment, std::uint32_t rank,
                                   std::vector<PeerView> views, std::byte* own_heap,
                                   std::vector<std::shared_ptr<void>> resources, PeerMemory peer_memory)
    : name_(name),
      segment_(segment),
      rank_(rank),
      views_(std::move(views)),
      own_heap_(own_heap),
      resources_(std::move(resources)),
      peer_memory_(peer_memory) {
  for (std::uint32_t peer = 0; peer < views_.size(); ++peer)
    reaches_buffers_ |= peer != rank_ && views_[peer].kind == PeerView::Kind::same_addresses;
}

std::vector<RankControl*> SegmentTransport::rank_controls() {
  std::vector<RankControl*> controls;
  for (std::uint32_t rank = 0; rank < segment_.geometry().ranks; ++rank)
    controls.push_back(&segment_.rank_control(rank));
  return controls;
}

Result<std::byte*> SegmentTransport::link_block(const LinkEnd& end) const {
  return segment_.find_or_make(Key::of(end), segment_.link_bytes(end.readers.size()));
}

Result<SendLink*> SegmentTransport::open_send(const LinkEnd& end) {
  auto& link = sends_[end.name()];
  if (!link) {
    STRAIT_ASSIGN(std::byte * block, link_block(end));
    link = std::make_unique<SlotSendLink>(SlotRing(block, end.readers.size(), segment_), end.readers.size());
  }
  return link.get();
}

Result<ReceiveLink*> SegmentTransport::open_receive(const LinkEnd& end) {
  auto& link = receives_[end.name()];
  if (!link) {
    const auto self = std::find(end.readers.begin(), end.readers.end(), rank_);
    if (self == end.readers.end())
      return fail(Code::internal_error, "rank " + std::to_string(rank_) + " is no reader of a link that it opens");
    STRAIT_ASSIGN(std::byte * block, link_block(end));
    link = std::make_unique<SlotReceiveLink>(SlotRing(block, end.readers.size(), segment_),
                                             static_cast<std::size_t>(self - end.readers.begin()));
  }
  return link.get();
}

Result<Counter*> SegmentTransport::signal_counter(const SignalEnd& end) const {
  STRAIT_ASSIGN(std::byte * block, segment_.find_or_make(Key::of(end), sizeof(Counter)));
  return reinterpret_cast<Counter*>(block);
}

Result<SignalSender*> SegmentTransport::open_signal(const SignalEnd& end) {
  auto& signal = signals_[end.name()];
  if (!signal) {
    STRAIT_ASSIGN(Counter * counter, signal_counter(end));
    signal = std::make_unique<CounterSender>(*counter);
  }
  return signal.get();
}

Result<SignalWaiter*> SegmentTransport::open_wait(const SignalEnd& end) {
  auto& wait = waits_[end.name()];
  if (!wait) {
    STRAIT_ASSIGN(Counter * counter, signal_counter(end));
    wait = std::make_unique<CounterWaiter>(*counter);
  }
  return wait.get();
}

void SegmentTransport::post_call(std::uint64_t sequence, const CallSignature& signature, const void* input,
                                 void* output) {
  const auto heap = reinterpret_cast<std::uintptr_t>(own_heap_);
  write_call(
      segment_.rank_control(rank_), sequence,
      {signature, reinterpret_cast<std::uintptr_t>(input) - heap, reinterpret_cast<std::uintptr_t>(output) - heap});
}

std::optional<PeerCall> SegmentTransport::peer_call(std::uint64_t sequence, std::uint32_t peer) const {
  const auto call = read_call(segment_.rank_control(peer), sequence);
  if (!call) return std::nullopt;
  PeerCall seen{call->signature, nullptr, nullptr};
  const PeerView& view = views_[peer];
  if (view.kind != PeerView::Kind::none) {
    // Threads of one process post offsets from the same heap base, so adding it back restores the posted address.
    const auto base = reinterpret_cast<std::uintptr_t>(view.kind == PeerView::Kind::heap ? view.heap : own_heap_);
    seen.input = reinterpret_cast<const std::byte*>(base + call->input);
    seen.output = reinterpret_cast<std::byte*>(base + call->output);
  }
  return seen;
}

}  // namespace strait::slots
