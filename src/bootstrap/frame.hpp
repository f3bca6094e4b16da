#pragma once

#include <cstdint>
#include <optional>

#include "bootstrap/serialize.hpp"

namespace strait {

/// What a frame contains; the payloads are defined in src/bootstrap/messages.hpp.
enum class FrameType : std::uint16_t {
  hello = 1,     ///< client to server: a nonce
  challenge,     ///< server to client: a nonce, and the proof that the server has the key
  proof,         ///< client to server: the proof that the client has the key
  admitted,      ///< server to client: the proof is accepted and came in time
  join,          ///< rank to root: who it is and where it listens
  welcome,       ///< root to rank: all have joined; the parent's address
  ready,         ///< rank to root: connected to all its neighbours; the root is no longer needed
  link,          ///< child to parent: which rank it is
  contribution,  ///< up the tree: one rank's part of an all-gather
  table,         ///< down the tree: all parts
  broadcast,     ///< along the tree, away from the broadcast's root
  error,         ///< along the tree or from the root: a failure that concerns every rank
  goodbye,       ///< to neighbours: this rank leaves without an error
  inquiry,       ///< root to rank that is not ready: what does it wait for?
  account,       ///< rank to root, in answer: as an error, which is a system_error if the rank lacks something
};

struct Frame {
  FrameType type{};
  Bytes payload;
};

/// Layout of a frame on the wire: u16 magic, u16 type, u32 payload bytes, payload.
inline constexpr std::uint16_t frame_magic = 0x5453;
inline constexpr std::size_t frame_header_bytes = 8;
/// The longest payload accepted from a peer that has not proven the key.
inline constexpr std::size_t stranger_payload_bytes = 256;
inline constexpr std::size_t member_payload_bytes = 64 << 20;

void append_frame(Bytes& out, FrameType type, std::span<const std::byte> payload);

/// Splits a byte stream into frames. Allocates nothing for a payload before its length has been checked.
class FrameParser {
 public:
  explicit FrameParser(std::size_t max_payload_bytes) : max_payload_bytes_(max_payload_bytes) {}

  void set_max_payload_bytes(std::size_t bytes) { max_payload_bytes_ = bytes; }
  void feed(std::span<const std::byte> bytes);
  /// Returns the next complete frame; nothing if it has not arrived yet; an error if the bytes are not a valid frame,
  /// and the peer should be dropped.
  Result<std::optional<Frame>> next();
  /// Returns the bytes after the frames taken so far; the parser is empty afterwards.
  Bytes take_rest();

 private:
  std::size_t max_payload_bytes_;
  Bytes buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace strait
