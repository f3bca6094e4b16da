#pragma once

#include <array>

#include "bootstrap/frame.hpp"

namespace strait {

using Key = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;

/// What a connection is for; it is part of what both sides prove, so that a proof cannot be used elsewhere.
enum class Purpose : std::uint8_t { join = 1, link = 2, data = 3 };

/// Bumped whenever frames change. Ranks with different ones refuse each other by name instead of misreading frames.
inline constexpr std::uint16_t protocol_version = 2;

/// Fails where libsodium cannot start.
Status start_crypto();
Key random_key();
void random_bytes(std::span<std::byte> out);
/// A keyed 256-bit hash; without a key a plain one.
Key derive_key(std::span<const std::byte> secret, std::string_view context);

/// Mutual challenge, both proofs HMAC-SHA-256 over {role, purpose, client nonce, server nonce}, compared in constant
/// time:
///   client -> server  hello      protocol version, purpose, client nonce
///   server -> client  challenge  server nonce, server's proof
///   client -> server  proof      client's proof
///   server -> client  admitted   (who is dropped for being late may knock again)
/// The server proves first, so that a client tells nothing to a stranger who took the address. Neither class does I/O.
class ClientHandshake {
 public:
  /// `server` names the other side in errors.
  ClientHandshake(const Key& key, Purpose purpose, std::string server);
  Bytes hello() const;
  /// The payload of the proof frame. Code::mismatch: the server has another key or protocol version.
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
  /// Takes the next frame: gives the payload of the challenge for a hello, and nothing for a proof that holds. Any
  /// error means: drop this peer.
  Result<Bytes> take(const Frame& frame);
  /// The peer speaks this protocol; whether it has the key is not known yet.
  bool began() const { return state_ != State::expects_hello; }
  bool done() const { return state_ == State::proven; }

 private:
  enum class State : std::uint8_t { expects_hello, expects_proof, proven };
  Result<Bytes> take_hello(const Frame& frame);

  Key key_;
  Purpose purpose_;
  Nonce nonce_;
  Nonce client_nonce_{};
  State state_ = State::expects_hello;
};

}  // namespace strait
