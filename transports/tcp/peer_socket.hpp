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

/// One data connection: cuts what arrives into frames, reads payloads straight to their places, and queues what is to
/// be sent. Nothing here waits. Used under the engine's lock.
class PeerSocket {
 public:
  /// Where a payload goes; nullptr ends the connection.
  using Place = std::function<std::byte*(const FrameHeader&)>;
  /// A frame is complete; false ends the connection.
  using Take = std::function<bool(const FrameHeader&)>;

  PeerSocket() = default;
  /// `unread`: bytes that came with the handshake.
  PeerSocket(Socket socket, Bytes unread, std::size_t slot_bytes, Place place, Take take);

  bool is_open() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  /// How the connection ended.
  const std::string& end_reason() const { return end_reason_; }
  void end(std::string reason);

  /// Takes in what has arrived, a bounded part of it at a time. Frames that came before the end are taken. What Place
  /// or Take throw ends neither the connection nor the frame: the next read() begins with it.
  void read();
  /// `payload` is not copied: it stays as it is until the frame is sent (a slot is given back only after that).
  /// Needs memory where more is queued than reserve() made room for.
  void queue(const FrameHeader& header, std::span<const std::byte> payload = {});
  /// Likewise, for as many frames as `last_words` without any memory.
  void queue_last(const FrameHeader& header, std::span<const std::byte> payload = {}) noexcept;
  void reserve(std::size_t frames) { spare_.resize(spare_.size() + frames); }
  /// Sends what can be sent at once.
  void flush();
  /// What is left to be sent of such a payload is copied to the same place in `to`, and sent from there.
  void move_unsent(std::span<const std::byte> payload, std::byte* to);
  /// If a payload is arriving in `place`, what is left of it goes to the same place in `to`.
  void move_arriving(std::span<std::byte> place, std::byte* to);
  /// Whether the system lacked memory for what was to be read or sent since this was asked last: it is to be tried
  /// again soon, and the socket does not tell when.
  bool take_shortage() { return std::exchange(met_shortage_, false); }
  bool has_unsent() const { return !queue_.empty(); }
  /// Whether more has come than read() has taken in.
  bool has_unread() const;
  /// Bytes that the peer's host has not acknowledged yet; 0 where there is no connection.
  std::size_t unacknowledged_bytes() const;

 private:
  struct Out {
    HeaderBytes header;
    std::span<const std::byte> payload;
  };
  static constexpr std::size_t staging_bytes = 16 << 10;
  static constexpr std::size_t last_words = 3;  ///< why the communicator has failed, that the process ends, goodbye

  /// Uses up what is staged; false if the connection ended over it.
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
  FrameHeader frame_;  ///< whose payload is arriving
  std::byte* payload_ = nullptr;
  std::size_t payload_left_ = 0;

  std::list<Out> queue_;
  std::list<Out> spare_;  ///< room for more
  std::size_t sent_of_front_ = 0;
  bool met_shortage_ = false;
};

}  // namespace strait::tcp
