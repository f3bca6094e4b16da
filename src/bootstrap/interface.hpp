#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/address.hpp"

namespace strait {

/// A network interface's address; an interface with several addresses appears once for each.
struct Interface {
  std::string name;
  SocketAddress address;
  bool up = false;
  bool loopback = false;
};

/// This host's addresses, without IPv6 link-local ones (they mean nothing on another host).
Result<std::vector<Interface>> list_interfaces();

/// The one interface to listen on. `filter` is STRAIT_SOCKET_IFNAME: "eth,ib", "^docker,lo", "=eth0"; with "" the first
/// that is up and neither loopback nor a container's or virtual machine's bridge, else loopback. IPv4 before IPv6.
Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view filter);

/// choose_interface for this host and environment.
Result<Interface> choose_interface(const Environment& environment);

/// What it carries each way, in GB/s, by its driver (ethtool(8)); 0 where that does not say, as of loopback, or not
/// truly, as of what joins a container to its host.
double rate_gbps(const Interface& interface);
/// The same of what a driver of that name says.
double rate_gbps(std::string_view driver, std::uint32_t megabits);

}  // namespace strait
