#include "transports/tcp/links.hpp"

namespace strait::tcp {

bool TcpSendLink::is_held() const {
  for (std::size_t reader = 0; reader < link_.readers.size(); ++reader)
    if (is_held_by(reader)) return true;
  return false;
}

std::byte* TcpSendLink::try_reserve() noexcept {
  const std::lock_guard lock(engine_.mutex());
  for (std::size_t reader = 0; reader < link_.readers.size(); ++reader)
    if (is_held_by(reader)) engine_.poll(link_.readers[reader]);
  if (is_held()) return nullptr;
  return link_.slots.get() + link_.next % engine_.geometry().depth * engine_.geometry().slot_bytes;
}

std::vector<std::size_t> TcpSendLink::holders() const {
  const std::lock_guard lock(engine_.mutex());
  std::vector<std::size_t> late;
  for (std::size_t reader = 0; reader < link_.readers.size(); ++reader)
    if (is_held_by(reader)) late.push_back(reader);
  return late;
}

void TcpSendLink::publish(const CallSignature& signature, std::size_t used_bytes) noexcept {
  const std::lock_guard lock(engine_.mutex());
  engine_.publish(link_, signature, used_bytes);
}

const std::byte* TcpReceiveLink::try_acquire(CallSignature& signature) noexcept {
  const std::lock_guard lock(engine_.mutex());
  if (link_.arrived == link_.released) engine_.poll(link_.writer);
  if (link_.arrived == link_.released) return nullptr;
  const std::size_t slot = link_.released % engine_.geometry().depth;
  signature = link_.signatures[slot];
  return link_.slots.get() + slot * engine_.geometry().slot_bytes;
}

void TcpReceiveLink::release() noexcept {
  const std::lock_guard lock(engine_.mutex());
  engine_.release(link_);
}

void TcpSignalSender::add() noexcept {
  const std::lock_guard lock(engine_.mutex());
  engine_.signal(stream_, to_);
}

bool TcpSignalWaiter::try_take(std::uint32_t credits) noexcept {
  const std::lock_guard lock(engine_.mutex());
  if (arrived_ + credits <= taken_) engine_.poll(from_);
  if (arrived_ + credits <= taken_) return false;
  ++taken_;
  return true;
}

}  // namespace strait::tcp
