#include "bootstrap/socket.hpp"

#include <fstream>

#include "ranks.hpp"

namespace strait::testing {
namespace {

/// Ports that connections begin at.
struct PortRange {
  std::uint16_t first = 0, last = 0;
};
PortRange ephemeral_ports() {
  PortRange range;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> range.first >> range.last;
  return range;
}

/// A port of these, of the half that Linux takes first for connections, where nobody listens.
SocketAddress free_port(const PortRange& range) {
  for (std::uint32_t port = range.first + 2000u; port <= range.last; port += 2) {
    SocketAddress address = address_of("127.0.0.1");
    address.port = static_cast<std::uint16_t>(port);
    if (listen_at(address)) return address;
  }
  return {};
}

/// A rank that tries again until rank 0 listens on its host begins at a port after the other, and so comes to that one.
TEST(Sockets, DoNotConnectToThemselves) {
  const PortRange range = ephemeral_ports();
  if (range.last < range.first + 4000) GTEST_SKIP() << "few ports that connections begin at";
  const SocketAddress address = free_port(range);
  ASSERT_NE(address.port, 0);
  for (int i = 0; i <= range.last - range.first; ++i)
    ASSERT_FALSE(connect_to(address, within_ms(5000), false)) << "nobody listens, after " << i;
  EXPECT_TRUE(listen_at(address)) << "nothing of it stays";
}

}  // namespace
}  // namespace strait::testing
