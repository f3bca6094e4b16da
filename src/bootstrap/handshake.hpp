#pragma once

#include <array>

#include "bootstrap/frame.hpp"

namespace strait {

using Key = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;

/// What a connection is for. Both sides include it in their proofs, so that a proof cannot be used for another purpose.
enum class Purpose : std::uint8_t { join = 1, link = 2, data = 3 };

/// Incremented whenever frames change. Ranks with different versions report that, instead of misreading frames.
inline constexpr std::uint16_t protocol_version = 3;

/// Initialises libsodium; fails if it cannot start.
Status start_crypto();
Key random_key();
void random_bytes(std::span<std::byte> out);
/// Returns a 256-bit hash of `context`, keyed with `secret`; unkeyed if `secret` is empty.
Key derive_key(std::span<const std::byte> secret, std::string_view context);

/// Mutual challenge-response. Both proofs are HMAC-SHA-256 over {role, purpose, client nonce, server nonce}, compared
/// in constant time:
///   client -> server  hello      protocol version, purpose, client nonce
///   server -> client  challenge  server nonce, server's proof
///   client -> server  proof      client's proof
///   server -> client  admitted   (a client that was dropped for being late may connect again)
/// The server proves first, so that a client reveals nothing to a stranger that has taken the address. These classes do
/// no I/O.
class ClientHandshake {
 public:
  /// `server` names the other side in errors.
  ClientHandshake(const Key& key, Purpose purpose, std::string server);
  Bytes hello() const;
  /// Checks the server's proof and returns the payload of the proof frame. Code::mismatch: the server has another key
  /// or protocol version.
  Result<Bytes> answer(const Frame& challenge) const;

 private:
  Key key_;
  Purpose purpose_;
  std::string server_;
  Nonce nonce_;
};

class ServerHandshake {
 public:
  ServerHandshake(const Key& key, Purpose purpose);
  /// Handles the next frame: returns the payload of the challenge for a hello, and nothing for a valid proof. On any
  /// error the peer must be dropped.
  Result<Bytes> take(const Frame& frame);
  /// Whether the peer speaks this protocol; it may not have proven the key yet.
  bool began() const { return state_ != State::expects_hello; }
  /// Whether a peer of the same version has seen this side's proof, but has not proven the key in turn. One that leaves
  /// then has another key.
  bool is_challenged() const { return state_ == State::expects_proof && client_version_ == protocol_version; }
  bool done() const { return state_ == State::proven; }

 private:
  enum class State : std::uint8_t { expects_hello, expects_proof, proven };
  Result<Bytes> take_hello(const Frame& frame);

  Key key_;
  Purpose purpose_;
  Nonce nonce_;
  Nonce client_nonce_{};
  std::uint16_t client_version_ = 0;
  State state_ = State::expects_hello;
};

}  // namespace strait
