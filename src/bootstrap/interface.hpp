#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/address.hpp"

namespace strait {

/// A network interface and one address of it; an interface with several addresses appears once for each.
struct Interface {
  std::string name;
  SocketAddress address;
  bool up = false;
  bool loopback = false;
};

/// Lists this host's addresses, except IPv6 link-local ones, which are meaningless on another host.
Result<std::vector<Interface>> list_interfaces();

/// Selects the interface to listen on. `filter` is STRAIT_SOCKET_IFNAME: "eth,ib", "^docker,lo", "=eth0". If it is "",
/// the first interface is taken that is up and neither loopback nor a bridge for containers or virtual machines;
/// failing that, loopback. IPv4 is preferred to IPv6.
Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view filter);

/// Selects the interface for this host and environment.
Result<Interface> choose_interface(const Environment& environment);

/// Returns the interface's bandwidth in each direction in GB/s, as its driver reports it (ethtool(8)); 0 if the driver
/// reports none, as for loopback, or one without meaning, as for interfaces that connect a container to its host.
double rate_gbps(const Interface& interface);
/// Converts the rate that a driver of this name reports.
double rate_gbps(std::string_view driver, std::uint32_t megabits);

}  // namespace strait
