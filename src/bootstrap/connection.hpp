#pragma once

#include <optional>
#include <string>

#include "bootstrap/frame.hpp"
#include "bootstrap/socket.hpp"

namespace strait {

/// A non-blocking connection that carries frames. Nothing here waits, except receive() and flush_all(),
/// and a moment where the system has no memory for a call.
class Connection {
 public:
  /// `peer` names the other side in errors.
  Connection(Socket socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  int fd() const { return socket_.get(); }
  const Socket& socket() const { return socket_; }
  const std::string& peer() const { return peer_; }
  void rename(std::string peer) { peer_ = std::move(peer); }
  /// The peer has proven the key: longer frames are accepted from it.
  void trust() { parser_.set_max_payload_bytes(member_payload_bytes); }

  /// Queues a frame and sends what can be sent at once.
  void send(FrameType type, std::span<const std::byte> payload);
  /// Sends what can be sent at once.
  void flush();
  bool wants_write() const { return sent_ < outgoing_.size() && !ended_; }
  short poll_events() const { return static_cast<short>(POLLIN | (wants_write() ? POLLOUT : 0)); }

  /// Takes in what has arrived. Afterwards next() gives the frames, also those that came before the end.
  void fill();
  Result<std::optional<Frame>> next() { return parser_.next(); }
  /// The peer has closed, or the connection broke; `end_reason` says how.
  bool ended() const { return ended_; }
  const std::string& end_reason() const { return end_reason_; }

  /// The socket, for a protocol other than frames; what of it has arrived already goes to `unread`. Everything queued
  /// must have been sent.
  Socket release(Bytes& unread) {
    unread = parser_.take_rest();
    return std::move(socket_);
  }

  /// Waits for one frame.
  Result<Frame> receive(const Wait& wait);
  /// Waits until everything queued is sent.
  Status flush_all(const Wait& wait);

 private:
  void end(int errno_value);

  Socket socket_;
  std::string peer_;
  FrameParser parser_{stranger_payload_bytes};
  Bytes outgoing_;
  std::size_t sent_ = 0;
  bool ended_ = false;
  std::string end_reason_;
};

}  // namespace strait
