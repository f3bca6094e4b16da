#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/limits.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/peer_info.hpp"

/// The payloads of frames and their encoding. Decoders must cope with any bytes, because a stranger may have sent them.
namespace strait {

using Session = std::array<std::byte, 16>;

/// Rank to root: what the root needs to introduce the rank to others and to name it in errors.
struct JoinMessage {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int64_t remaining_ms = 0;  ///< until this rank's deadline
  std::string host_name;
  std::int64_t pid = 0;
  SocketAddress listener;  ///< address at which this rank's children in the tree connect to it
  std::vector<Setting> settings;
  /// The number by which messages name this rank, if that is another one: in rejoin() the earlier one. -1: `rank`.
  std::int32_t known_as = -1;
};
Bytes encode(const JoinMessage& message);
Result<JoinMessage> decode_join(std::span<const std::byte> payload);

/// Root to rank: all ranks have joined.
struct WelcomeMessage {
  Session session{};  ///< random; distinguishes this set of ranks from others with the same key
  SocketAddress parent;
};
Bytes encode(const WelcomeMessage& message);
Result<WelcomeMessage> decode_welcome(std::span<const std::byte> payload);

/// Child to parent: which rank connects.
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

/// Head of every frame of a channel operation, by which ranks notice that they are in different operations.
struct OperationHead {
  std::uint8_t operation = 0;
  std::uint64_t sequence = 0;
  std::int32_t origin = 0;  ///< the rank whose data follows (contribution), or that broadcasts
  bool operator==(const OperationHead&) const = default;
};
void write_head(Serializer& out, const OperationHead& head);
OperationHead read_head(Deserializer& in);

}  // namespace strait
