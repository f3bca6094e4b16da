#pragma once

#include <optional>
#include <string>

#include "bootstrap/frame.hpp"
#include "bootstrap/socket.hpp"

namespace strait {

/// A non-blocking connection that carries frames. Its functions do not wait, except receive(), flush_all(), and briefly
/// any function for which the system has no memory at the moment. Not thread-safe.
class Connection {
 public:
  /// `peer` names the other side in errors.
  Connection(Socket socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  int fd() const { return socket_.get(); }
  const Socket& socket() const { return socket_; }
  const std::string& peer() const { return peer_; }
  void rename(std::string peer) { peer_ = std::move(peer); }
  /// Accepts longer frames from now on, because the peer has proven the key.
  void trust() { parser_.set_max_payload_bytes(member_payload_bytes); }

  /// Queues a frame and sends as much as the socket takes now.
  void send(FrameType type, std::span<const std::byte> payload);
  /// Sends as much of what is queued as the socket takes now.
  void flush();
  bool wants_write() const { return sent_ < outgoing_.size() && !ended_; }
  short poll_events() const { return static_cast<short>(POLLIN | (wants_write() ? POLLOUT : 0)); }

  /// Reads what has arrived. next() then returns the frames, including those that came before the connection ended.
  void fill();
  Result<std::optional<Frame>> next() { return parser_.next(); }
  /// Whether the peer has closed the connection or it broke; `end_reason` says how.
  bool ended() const { return ended_; }
  const std::string& end_reason() const { return end_reason_; }

  /// Gives up the socket, for a protocol other than frames; bytes that have already been read go to `unread`.
  /// Everything queued must have been sent.
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
