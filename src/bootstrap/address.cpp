#include "bootstrap/address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/shortage.hpp"
#include "base/unique_fd.hpp"

namespace strait {

bool SocketAddress::is_loopback() const {
  if (family == 4) return bytes[0] == std::byte{127};
  for (std::size_t i = 0; i < 15; ++i)
    if (bytes[i] != std::byte{0}) return false;
  return bytes[15] == std::byte{1};
}

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  std::string host = family == 4 ? text : "[" + std::string(text) + "]";
  return host + ":" + std::to_string(port);
}

socklen_t SocketAddress::to_sockaddr(sockaddr_storage& out) const {
  out = {};
  if (family == 4) {
    auto& in = reinterpret_cast<sockaddr_in&>(out);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, bytes.data(), sizeof(in.sin_addr));
    return sizeof(in);
  }
  auto& in6 = reinterpret_cast<sockaddr_in6&>(out);
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  std::memcpy(&in6.sin6_addr, bytes.data(), sizeof(in6.sin6_addr));
  return sizeof(in6);
}

Result<SocketAddress> from_sockaddr(const sockaddr* address) {
  SocketAddress result;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof(in));
    result.family = 4;
    result.port = ntohs(in.sin_port);
    std::memcpy(result.bytes.data(), &in.sin_addr, sizeof(in.sin_addr));
    return result;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 in6;
    std::memcpy(&in6, address, sizeof(in6));
    result.family = 6;
    result.port = ntohs(in6.sin6_port);
    std::memcpy(result.bytes.data(), &in6.sin6_addr, sizeof(in6.sin6_addr));
    return result;
  }
  return fail(Code::unsupported, "address family " + std::to_string(address->sa_family) + " is neither IPv4 nor IPv6");
}

void write_address(Serializer& out, const SocketAddress& address) {
  out.number(static_cast<std::uint8_t>(address.family));
  out.raw(address.bytes);
  out.number(address.port);
}

SocketAddress read_address(Deserializer& in) {
  SocketAddress address;
  address.family = in.number<std::uint8_t>();
  in.fill(address.bytes);
  address.port = in.number<std::uint16_t>();
  if (address.family != 4 && address.family != 6) in.reject();
  return address;
}

Result<HostPort> parse_host_port(const std::string& text) {
  auto refuse = [&] {
    return fail(Code::invalid_argument,
                "\"" + text + "\" is not an address: give host:port, 192.0.2.1:port or [2001:db8::1]:port");
  };
  auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return refuse();
  HostPort result{text.substr(0, colon), 0};
  if (result.host.front() == '[') {
    if (result.host.back() != ']' || result.host.size() < 3) return refuse();
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    return refuse();
  }
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data() + colon + 1, end, result.port);
  if (error != std::errc{} || rest != end || result.port == 0) return refuse();
  return result;
}

namespace {

struct Lookup {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<Result<SocketAddress>> result;
};

/// Whether this host has a route to the address: connecting a datagram socket looks one up, and sends nothing. A host
/// with only IPv6 has none to the IPv4 address that a name may also have.
bool has_route(const addrinfo& entry) {
  const UniqueFd probe(::socket(entry.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return ::connect(probe.get(), entry.ai_addr, entry.ai_addrlen) == 0;
}

Result<SocketAddress> look_up(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); code != 0)
    return fail(Code::system_error, "cannot resolve the host name \"" + host + "\": " + ::gai_strerror(code) +
                                        ". Give the address in numbers, or fix DNS or /etc/hosts");
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  // Ranks should all choose the same address, because rank 0 listens on the one that it chooses.
  const addrinfo* chosen = nullptr;
  for (const int family : {AF_INET, AF_INET6})
    for (const addrinfo* entry = list; entry != nullptr && chosen == nullptr; entry = entry->ai_next)
      if (entry->ai_family == family && (list->ai_next == nullptr || has_route(*entry))) chosen = entry;
  if (chosen == nullptr) chosen = list;
  if (chosen == nullptr) return fail(Code::system_error, "the host name \"" + host + "\" has no address");
  return from_sockaddr(chosen->ai_addr);
}

}  // namespace

Result<SocketAddress> resolve(const std::string& host, std::uint16_t port, Deadline deadline) {
  auto with_port = [port](SocketAddress address) {
    address.port = port;
    return address;
  };
  if (auto numeric = look_up(host, AI_NUMERICHOST)) return with_port(*numeric);
  // getaddrinfo may wait for a DNS server beyond the deadline, and cannot be interrupted: it runs in a thread of its
  // own.
  auto lookup = std::make_shared<Lookup>();
  STRAIT_TRY(catch_shortage([&] {
    std::thread([lookup, host] {
      auto result = catch_shortage([&] { return look_up(host, 0); });
      std::lock_guard lock(lookup->mutex);
      lookup->result = std::move(result);
      lookup->done.notify_one();
    }).detach();
  }));
  std::unique_lock lock(lookup->mutex);
  while (!lookup->result && !deadline.expired())
    lookup->done.wait_for(lock, std::chrono::milliseconds(deadline.poll_ms()));
  if (!lookup->result)
    return fail(Code::timeout, "the host name \"" + host +
                                   "\" was not resolved in time: give the address in numbers, or "
                                   "check the DNS server");
  return lookup->result->map(with_port);
}

}  // namespace strait
