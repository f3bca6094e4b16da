#pragma once

#include <array>
#include <span>

#include "bootstrap/address.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

inline constexpr std::size_t unique_id_bytes = 128;

/// The ticket by which ranks find and trust one another. Whoever has it can join: pass it on by a channel that you
/// trust.
struct UniqueId {
  SocketAddress root;
  Key key{};
  /// The root's address was agreed on beforehand, so a rank may come before it listens: refusals are tried again.
  bool root_may_be_late = false;

  std::array<std::byte, unique_id_bytes> pack() const;
};

/// Fails for bytes that are no unique id, or one of another version of Strait's protocol.
Result<UniqueId> unpack_unique_id(std::span<const std::byte> bytes);

}  // namespace strait
