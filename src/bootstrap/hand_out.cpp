#include "bootstrap/hand_out.hpp"

#include <unistd.h>

#include <thread>

#include "base/log.hpp"
#include "base/unix_peer.hpp"

namespace strait {

HandOut& HandOut::operator=(HandOut&& other) noexcept {
  close();
  listener_ = std::move(other.listener_);
  return *this;
}

int HandOut::serve(std::span<const std::byte> answer) {
  constexpr int at_a_time = 64;  // bounded: ranks that connect to the root's TCP port wait meanwhile
  int answered = 0;
  for (int i = 0; i < at_a_time; ++i) {
    auto socket = accept_one(listener_);
    if (!socket) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // out of descriptors: avoid a busy loop
    if (!socket || !*socket) break;
    if (const auto user = peer_uid(socket->get()); user != ::geteuid()) {
      close_without_blocking(socket->release());
      log_info(-1, "refused the unique id to a process of another user (uid " +
                       (user ? std::to_string(*user) : "unknown") + ")");
      continue;
    }
    // The empty buffer of a new socket takes these few bytes at once.
    const auto sent = ::send(socket->get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(answer.size())) ++answered;
  }
  return answered;
}

void HandOut::close() {
  if (listener_) stop_listening(listener_.get());
  listener_.reset();
}

}  // namespace strait
