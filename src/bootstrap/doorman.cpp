#include "bootstrap/doorman.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace strait {
namespace {

std::string peer_name(const Socket& socket) {
  const auto address = socket.peer_address();
  return address ? address->to_string() : "a peer that has gone";
}

}  // namespace

Doorman::Doorman(Socket listener, const Key& key, Purpose purpose, Limits limits)
    : listener_(std::move(listener)), key_(key), purpose_(purpose), limits_(limits) {}

void Doorman::watch(std::vector<pollfd>& fds) const {
  // While descriptors are exhausted, the waiting connection would make poll return at once every time: it is looked at
  // again a little later.
  if (listener_ && accept_again_.expired()) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Pending& pending : pending_) fds.push_back({pending.connection.fd(), pending.connection.poll_events(), 0});
}

void Doorman::accept_some() {
  for (std::size_t i = 0; i < limits_.accepts && listener_ && accept_again_.expired(); ++i) {
    const bool full = pending_.size() >= limits_.pending;
    if (full && (!somebody_waits(listener_) || !make_room(oldest_silent(), "dropped because too many others knocked")))
      return;
    auto socket = accept_one(listener_);
    if (!socket) {
      accept_error_ = socket.error().message;
      // At once: ranks that are not accepted hear nothing, and so cannot say why.
      if (!std::exchange(has_warned_, true)) log_warn(-1, "ranks that connect have to wait: " + accept_error_);
      make_room(pending_.end(), "dropped to free its file descriptor");
      continue;
    }
    if (!*socket) return;
    accept_error_.clear();
    std::string peer = peer_name(*socket);
    pending_.push_back({Connection(std::move(*socket), std::move(peer)), ServerHandshake(key_, purpose_),
                        Deadline::after_ms(limits_.handshake_ms), Deadline::after_ms(limits_.handshake_ms / 8)});
  }
}

/// Returns the oldest of the connections that had not sent a hello when last examined.
Doorman::PendingList::iterator Doorman::oldest_silent() {
  return std::find_if(pending_.begin(), pending_.end(), [](const Pending& p) { return p.was_silent; });
}

/// Drops `stranger`; or without one the oldest connection, if it has not finished its handshake in the short time that
/// ranks need. If none can be dropped, nobody is accepted for a while, and it returns false.
bool Doorman::make_room(PendingList::iterator stranger, const std::string& reason) {
  if (stranger == pending_.end() && !pending_.empty() && pending_.front().patience.expired())
    stranger = pending_.begin();
  if (stranger == pending_.end()) {
    accept_again_ = Deadline::after_ms(20);
    return false;
  }
  count_drop(stranger->connection.peer(), {Code::remote_error, reason});
  pending_.erase(stranger);
  return true;
}

Status Doorman::advance(Pending& pending) const {
  Connection& connection = pending.connection;
  const bool had_begun = pending.handshake.began();
  connection.flush();
  connection.fill();
  while (!pending.handshake.done()) {
    STRAIT_ASSIGN(auto frame, connection.next());
    if (!frame) break;
    STRAIT_ASSIGN(Bytes reply, pending.handshake.take(*frame));
    if (!reply.empty()) connection.send(FrameType::challenge, reply);
  }
  pending.was_silent = !pending.handshake.began();
  if (pending.handshake.done()) return {};
  // One that left before it could see the challenge may have known the key.
  if (connection.ended() && had_begun && pending.handshake.is_challenged())
    return fail(Code::mismatch, "did not know this job's key");
  if (connection.ended()) return fail(Code::remote_error, "left during the handshake");
  if (pending.deadline.expired()) return fail(Code::timeout, "did not finish the handshake in time");
  return {};
}

std::vector<Connection> Doorman::admit() {
  std::vector<Connection> admitted;
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (auto status = advance(*it); !status) {
      count_drop(it->connection.peer(), status.error());
      it = pending_.erase(it);
    } else if (it->handshake.done()) {
      it->connection.trust();
      it->connection.send(FrameType::admitted, {});
      admitted.push_back(std::move(it->connection));
      it = pending_.erase(it);
    } else {
      ++it;
    }
  }
  accept_some();
  return admitted;
}

void Doorman::close() {
  listener_.reset();
  pending_.clear();
}

void Doorman::count_drop(const std::string& peer, const Error& reason) {
  ++dropped_;
  if (reason.code == Code::mismatch) {
    ++with_another_key_;
    last_with_another_key_ = peer;
  } else {
    last_drop_ = peer + ": " + reason.message;
  }
  log_info(-1, "dropped a stranger on the start-up port, " + peer + ": " + reason.message);
}

std::string Doorman::describe_drops() const {
  const auto connections = [](std::int64_t count) {
    return std::to_string(count) + (count == 1 ? " connection " : " connections ");
  };
  std::string text;
  if (with_another_key_ > 0)
    text = ". " + connections(with_another_key_) + "did not know this job's key (the last one from " +
           last_with_another_key_ + "): give all ranks the same STRAIT_KEY, or the same unique id";
  if (const auto others = dropped_ - with_another_key_; others > 0)
    text += ". " + connections(others) + (with_another_key_ > 0 ? "more " : "") +
            (others == 1 ? "was dropped, being " : "were dropped, the last one being ") + last_drop_;
  return text;
}

}  // namespace strait
