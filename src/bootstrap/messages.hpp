#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/limits.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/peer_info.hpp"

/// The payloads of frames, and how they are encoded. Decoders take bytes that a stranger may have sent.
namespace strait {

using Session = std::array<std::byte, 16>;

/// rank -> root. What the root needs in order to introduce ranks and to name them in errors.
struct JoinMessage {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int64_t remaining_ms = 0;  ///< until this rank's deadline
  std::string host_name;
  std::int64_t pid = 0;
  SocketAddress listener;  ///< where this rank's children in the tree find it
  std::vector<Setting> settings;
};
Bytes encode(const JoinMessage& message);
Result<JoinMessage> decode_join(std::span<const std::byte> payload);

/// root -> rank.
struct WelcomeMessage {
  Session session{};  ///< tells this set of ranks from others with the same key
  SocketAddress parent;
};
Bytes encode(const WelcomeMessage& message);
Result<WelcomeMessage> decode_welcome(std::span<const std::byte> payload);

/// child -> parent.
struct LinkMessage {
  Session session{};
  std::int32_t rank = 0;
};
Bytes encode(const LinkMessage& message);
Result<LinkMessage> decode_link(std::span<const std::byte> payload);

Bytes encode(const Error& error);
Result<Error> decode_error(std::span<const std::byte> payload);

Bytes encode(const PeerInfo& info);
Result<PeerInfo> decode_peer_info(std::span<const std::byte> payload);

/// The head of every frame of a collective operation of the channel, so that ranks in different calls notice.
struct OperationHead {
  std::uint8_t operation = 0;
  std::uint64_t sequence = 0;
  std::int32_t origin = 0;  ///< whose data follows (contribution), or who broadcasts
  bool operator==(const OperationHead&) const = default;
};
void write_head(Serializer& out, const OperationHead& head);
OperationHead read_head(Deserializer& in);

}  // namespace strait
