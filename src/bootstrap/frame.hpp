#pragma once

#include <cstdint>
#include <optional>

#include "bootstrap/serialize.hpp"

namespace strait {

/// What a frame holds; src/bootstrap/messages.hpp has the payloads.
enum class FrameType : std::uint16_t {
  hello = 1,     ///< client to server: a nonce
  challenge,     ///< server to client: a nonce, and the proof that the server has the key
  proof,         ///< client to server: the proof that the client has the key
  admitted,      ///< server to client: it came in time
  join,          ///< rank to root: who it is and where it listens
  welcome,       ///< root to rank: all have joined; the parent's address
  ready,         ///< rank to root: linked to all its neighbours; the root is not needed any more
  link,          ///< child to parent: which rank it is
  contribution,  ///< up the tree: one rank's part of an all-gather
  table,         ///< down the tree: all parts
  broadcast,     ///< along the tree, away from the broadcast's root
  error,         ///< along the tree or from the root: a failure that concerns every rank
  goodbye,       ///< to neighbours: this rank leaves in good order
};

struct Frame {
  FrameType type{};
  Bytes payload;
};

/// A frame on the wire: u16 magic, u16 type, u32 payload bytes, payload.
inline constexpr std::uint16_t frame_magic = 0x5453;
inline constexpr std::size_t frame_header_bytes = 8;
/// What a peer that has not proven the key may send at once.
inline constexpr std::size_t stranger_payload_bytes = 256;
inline constexpr std::size_t member_payload_bytes = 64 << 20;

void append_frame(Bytes& out, FrameType type, std::span<const std::byte> payload);

/// Cuts a byte stream into frames. Nothing is allocated for a payload before its length has been checked.
class FrameParser {
 public:
  explicit FrameParser(std::size_t max_payload_bytes) : max_payload_bytes_(max_payload_bytes) {}

  void set_max_payload_bytes(std::size_t bytes) { max_payload_bytes_ = bytes; }
  void feed(std::span<const std::byte> bytes);
  /// The next whole frame, nothing if it has not arrived yet, or an error if this is no frame: then drop the peer.
  Result<std::optional<Frame>> next();
  /// What follows the frames taken so far; the parser is empty afterwards.
  Bytes take_rest();

 private:
  std::size_t max_payload_bytes_;
  Bytes buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace strait
