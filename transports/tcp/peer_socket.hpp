#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/serialize.hpp"
#include "bootstrap/socket.hpp"
#include "transports/tcp/frame.hpp"

namespace strait::tcp {

/// One data connection: splits what arrives into frames, reads payloads directly to their destinations, and queues what
/// is to be sent. Nothing here waits. Must be used with the engine's lock held.
class PeerSocket {
 public:
  /// Returns where the payload of a frame goes; nullptr ends the connection.
  using Place = std::function<std::byte*(const FrameHeader&)>;
  /// Handles a complete frame; false ends the connection.
  using Take = std::function<bool(const FrameHeader&)>;

  PeerSocket() = default;
  /// `unread`: bytes that came with the handshake.
  PeerSocket(Socket socket, Bytes unread, std::size_t slot_bytes, Place place, Take take);

  bool is_open() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  /// Returns how the connection ended.
  const std::string& end_reason() const { return end_reason_; }
  void end(std::string reason);

  /// Reads what has arrived, a bounded amount per call, and handles the complete frames, including those that came
  /// before the end of the connection. If Place or Take throw, neither the connection nor the frame is lost: the next
  /// read() begins with that frame.
  void read();
  /// Queues a frame. `payload` is not copied, and must stay unchanged until the frame is sent (a slot is released only
  /// after that). Allocates memory if more is queued than reserve() made room for.
  void queue(const FrameHeader& header, std::span<const std::byte> payload = {});
  /// As queue(), but without allocating memory; room for `last_words` such frames is always reserved.
  void queue_last(const FrameHeader& header, std::span<const std::byte> payload = {}) noexcept;
  void reserve(std::size_t frames) { spare_.resize(spare_.size() + frames); }
  /// Sends as much of what is queued as the socket takes now.
  void flush();
  /// Moves the unsent rest of a queued payload: copies it to the same offset in `to`, from where it is then sent.
  void move_unsent(std::span<const std::byte> payload, std::byte* to);
  /// If a payload is arriving in `place`, redirects the rest of it to the same offset in `to`.
  void move_arriving(std::span<std::byte> place, std::byte* to);
  /// Whether the system lacked memory for a read or write since the last call of this function. The caller must then
  /// try again soon, because the socket's readiness does not tell when that is possible.
  bool take_shortage() { return std::exchange(met_shortage_, false); }
  bool has_unsent() const { return !queue_.empty(); }
  /// Whether more has arrived than read() has taken.
  bool has_unread() const;
  /// Returns the number of sent bytes that the peer's host has not acknowledged yet; 0 if there is no connection.
  std::size_t unacknowledged_bytes() const;

 private:
  struct Out {
    HeaderBytes header;
    std::span<const std::byte> payload;
  };
  static constexpr std::size_t staging_bytes = 16 << 10;
  static constexpr std::size_t last_words = 3;  ///< an error, the end of the process, and a goodbye

  /// Parses what is staged; returns false if that ended the connection.
  bool parse();
  bool begin_frame();
  bool complete_frame();
  void push(const FrameHeader& header, std::span<const std::byte> payload) noexcept;
  void drop_sent(std::size_t bytes);

  Socket socket_;
  std::size_t slot_bytes_ = 0;
  Place place_;
  Take take_;
  std::string end_reason_;

  std::unique_ptr<std::byte[]> staging_;
  std::size_t staged_bytes_ = 0;
  std::size_t used_of_stage_ = 0;
  FrameHeader frame_;  ///< the frame whose payload is arriving
  std::byte* payload_ = nullptr;
  std::size_t payload_left_ = 0;

  std::list<Out> queue_;
  std::list<Out> spare_;  ///< unused nodes: room for further frames
  std::size_t sent_of_front_ = 0;
  bool met_shortage_ = false;
};

}  // namespace strait::tcp
