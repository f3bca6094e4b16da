#pragma once

#include <array>
#include <span>

#include "bootstrap/address.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

inline constexpr std::size_t unique_id_bytes = 128;

/// What ranks need to find and authenticate one another. Whoever has it can join: pass it on only through a trusted
/// channel.
struct UniqueId {
  SocketAddress root;
  Key key{};
  /// The root's address was agreed on beforehand, so that a rank may come before the root listens: refused connections
  /// are tried again.
  bool root_may_be_late = false;

  std::array<std::byte, unique_id_bytes> pack() const;
};

/// Decodes pack(). Fails for bytes that are not a unique id, or one of another version of Strait's protocol.
Result<UniqueId> unpack_unique_id(std::span<const std::byte> bytes);

/// What rank 0 gives to ranks that ask it for the unique id if it cannot make one.
Bytes pack_refusal(const Error& why);
/// Decodes what rank 0 gave. Fails with its error if that is a refusal.
Result<UniqueId> unpack_id_or_refusal(std::span<const std::byte> bytes);

}  // namespace strait
