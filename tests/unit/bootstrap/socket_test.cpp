#include "bootstrap/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

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
    ASSERT_FALSE(connect_to(address, within_ms(5000))) << "nobody listens, after " << i;
  EXPECT_TRUE(listen_at(address)) << "nothing of it stays";
}

int option_of(const Socket& socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.get(), level, option, &value, &size), 0);
  return value;
}

/// At both ends, and of a host other than this one: an address of this one that is not where the connection begins.
TEST(Sockets, EndWhenTheOtherHostHasVanishedForAMinute) {
  for (const char* const at : {"127.0.0.2", "127.0.0.1"}) {
    const auto listener = listen_at(address_of(at));
    ASSERT_TRUE(listener);
    const auto caller = connect_to(*listener->local_address(), within_ms(5000));
    ASSERT_TRUE(caller);
    const auto accepted = accept_one(*listener);
    ASSERT_TRUE(accepted && *accepted);
    const bool is_far = !caller->stays_on_host();
    EXPECT_EQ(is_far, std::string(at) == "127.0.0.2");
    for (const Socket* const end : {&*caller, &*accepted}) {
      EXPECT_EQ(option_of(*end, IPPROTO_TCP, TCP_NODELAY), 1);
      EXPECT_EQ(option_of(*end, SOL_SOCKET, SO_KEEPALIVE), is_far ? 1 : 0);
      if (!is_far) continue;
      const int seconds = option_of(*end, IPPROTO_TCP, TCP_KEEPIDLE) +
                          option_of(*end, IPPROTO_TCP, TCP_KEEPINTVL) * option_of(*end, IPPROTO_TCP, TCP_KEEPCNT);
      EXPECT_EQ(seconds, 60);
    }
  }
}

/// In a network of its own with a few ports.
TEST(Sockets, WithoutAPortLeftSaySo) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr const char* range = "/proc/sys/net/ipv4/ip_local_port_range";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !(std::ofstream(range) << "40000 40003" << std::flush))
      ::_exit(77);
    std::vector<Socket> kept;
    auto another = reserve_at(address_of("0.0.0.0"));
    for (; another && kept.size() < 10; another = reserve_at(address_of("0.0.0.0")))
      kept.push_back(std::move(*another));
    EXPECT_THAT(another, FailsWith(Code::system_error, HasSubstr("No port is left: widen")));
    EXPECT_THAT(listen_at(address_of("0.0.0.0")), FailsWith(Code::system_error, HasSubstr("No port is left: widen")));
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "making namespaces is not permitted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace strait::testing
