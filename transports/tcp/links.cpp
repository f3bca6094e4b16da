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
  if (is_held() || engine_.is_short_of_memory()) return nullptr;
  return engine_.next_slot(link_);
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
  engine_.publish(link_, signature, {engine_.next_slot(link_), used_bytes});
}

void TcpSendLink::publish_from(const CallSignature& signature, std::span<const std::byte> bytes) noexcept {
  const std::lock_guard lock(engine_.mutex());
  engine_.publish(link_, signature, bytes);
}

const std::byte* TcpReceiveLink::try_acquire_into(std::span<std::byte> place, const CallSignature& expected,
                                                  CallSignature& signature) noexcept {
  const std::lock_guard lock(engine_.mutex());
  if (link_.arrived == link_.released) {
    link_.place = place;
    link_.expected = expected;
    engine_.poll(link_.writer);
  }
  if (link_.arrived == link_.released || engine_.is_short_of_memory()) return nullptr;
  link_.place = {};
  const std::size_t slot = link_.released % engine_.geometry().depth;
  signature = link_.signatures[slot];
  return link_.arrived_at[slot];
}

void TcpReceiveLink::release() noexcept {
  const std::lock_guard lock(engine_.mutex());
  engine_.release(link_);
}

void TcpSignalSender::add() noexcept {
  const std::lock_guard lock(engine_.mutex());
  engine_.signal(stream_, to_);
}

bool TcpSignalWaiter::try_take() noexcept {
  const std::lock_guard lock(engine_.mutex());
  if (arrived_ == taken_) engine_.poll(from_);
  if (arrived_ == taken_ || engine_.is_short_of_memory()) return false;
  ++taken_;
  return true;
}

}  // namespace strait::tcp
