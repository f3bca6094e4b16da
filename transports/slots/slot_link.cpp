#include "transports/slots/slot_link.hpp"

#include <algorithm>

namespace strait::slots {

SlotRing::SlotRing(std::byte* block, std::size_t readers, const Segment& segment)
    : released_counts_(reinterpret_cast<Counter*>(block)),
      slots_(block + readers * sizeof(Counter)),
      stride_bytes_(segment.slot_stride_bytes()),
      depth_(segment.geometry().depth) {}

std::byte* SlotSendLink::try_reserve() noexcept {
  if (next_ - released_all_ >= ring_.depth()) {
    std::uint64_t least = next_;
    for (std::size_t reader = 0; reader < readers_; ++reader)
      least = std::min(least, ring_.released_count(reader).value.load(std::memory_order_acquire));
    released_all_ = least;
    if (next_ - released_all_ >= ring_.depth()) return nullptr;
  }
  return ring_.payload(next_);
}

std::vector<std::size_t> SlotSendLink::holders() const {
  std::vector<std::size_t> late;
  for (std::size_t reader = 0; reader < readers_; ++reader)
    if (next_ - ring_.released_count(reader).value.load(std::memory_order_acquire) >= ring_.depth())
      late.push_back(reader);
  return late;
}

void SlotSendLink::publish(const CallSignature& signature, std::size_t /*used_bytes*/) noexcept {
  SlotHeader& header = ring_.header(next_);
  header.signature = signature;
  // The release store pairs with the acquire load in try_acquire(): it publishes the payload and the signature.
  header.sequence.store(++next_, std::memory_order_release);
}

const std::byte* SlotReceiveLink::try_acquire(CallSignature& signature) noexcept {
  const SlotHeader& header = ring_.header(next_);
  if (header.sequence.load(std::memory_order_acquire) != next_ + 1) return nullptr;
  signature = header.signature;
  return ring_.payload(next_);
}

void SlotReceiveLink::release() noexcept {
  ring_.released_count(reader_).value.store(++next_, std::memory_order_release);
}

bool CounterWaiter::try_take() noexcept {
  if (seen_ == taken_) {
    seen_ = counter_.value.load(std::memory_order_acquire);
    if (seen_ == taken_) return false;
  }
  ++taken_;
  return true;
}

}  // namespace strait::slots
