#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bootstrap/serialize.hpp"

namespace strait {

/// An IPv4 or IPv6 address and a TCP port.
struct SocketAddress {
  int family = 0;  ///< 4 or 6
  std::array<std::byte, 16> bytes{};
  std::uint16_t port = 0;

  bool is_loopback() const;
  std::string to_string() const;  ///< "192.0.2.1:7000" or "[2001:db8::1]:7000"
  /// Converts the address for bind and connect; returns the length.
  socklen_t to_sockaddr(sockaddr_storage& out) const;
  bool operator==(const SocketAddress&) const = default;
};

/// Converts from a sockaddr; fails for families other than IPv4 and IPv6.
Result<SocketAddress> from_sockaddr(const sockaddr* address);

void write_address(Serializer& out, const SocketAddress& address);
/// Reads an address; makes `in` fail if the family is neither 4 nor 6.
SocketAddress read_address(Deserializer& in);

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
/// Parses "host:port", "192.0.2.1:port" or "[2001:db8::1]:port".
Result<HostPort> parse_host_port(const std::string& text);

/// Resolves a host name or numeric address. If a name has both kinds of address, IPv4 is preferred if this host has a
/// route to it.
Result<SocketAddress> resolve(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace strait
