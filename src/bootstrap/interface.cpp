#include "bootstrap/interface.hpp"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "bootstrap/socket.hpp"

namespace strait {
namespace {

/// Names of the interfaces by which a host is connected to its containers and virtual machines.
constexpr std::string_view bridge_prefixes[] = {"docker", "veth",    "virbr",  "br-", "cni", "podman",
                                                "vmnet",  "flannel", "cilium", "lxc", "cali"};
constexpr std::string_view tunnel_prefixes[] = {"tun", "wg"};

/// A parsed STRAIT_SOCKET_IFNAME.
struct Filter {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string_view> names;

  bool admits(std::string_view name) const {
    bool listed = std::any_of(names.begin(), names.end(), [&](std::string_view item) {
      return exact ? name == item : name.substr(0, item.size()) == item;
    });
    return listed != exclude;
  }
};

Filter parse_filter(std::string_view text) {
  Filter filter;
  for (; !text.empty() && (text.front() == '^' || text.front() == '='); text.remove_prefix(1))
    (text.front() == '^' ? filter.exclude : filter.exact) = true;
  while (!text.empty()) {
    auto comma = text.find(',');
    if (comma != 0) filter.names.push_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return filter;
}

bool has_one_of(std::span<const std::string_view> prefixes, std::string_view name) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; });
}

std::string describe(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& entry : interfaces) {
    SocketAddress address = entry.address;
    std::string host = address.to_string();
    text +=
        (text.empty() ? "" : ", ") + entry.name + " (" + host.substr(0, host.rfind(':')) + (entry.up ? ")" : ", down)");
  }
  return text.empty() ? "none" : text;
}

bool is_link_local(const SocketAddress& address) {
  return address.family == 6 && address.bytes[0] == std::byte{0xfe} &&
         (address.bytes[1] & std::byte{0xc0}) == std::byte{0x80};
}
/// Whether the address is an IPv4 link-local one (169.254/16). The interface of a server's management controller has
/// such an address, and leads to no other host; but hosts connected by a bare cable may have no other.
bool is_self_assigned(const SocketAddress& address) {
  return address.family == 4 && address.bytes[0] == std::byte{169} && address.bytes[1] == std::byte{254};
}

/// How likely an interface leads to other hosts; the most likely first.
enum class Reach : std::uint8_t { plain, doubtful, loopback };
constexpr Reach all_reaches[] = {Reach::plain, Reach::doubtful, Reach::loopback};
Reach reach_of(const Interface& entry) {
  if (entry.loopback) return Reach::loopback;
  return is_self_assigned(entry.address) || has_one_of(tunnel_prefixes, entry.name) ? Reach::doubtful : Reach::plain;
}

/// Returns the first admitted interface of the best reach; among interfaces of equal reach, the host's order decides.
template <class Predicate>
const Interface* first(std::span<const Interface> interfaces, Predicate admits) {
  for (const Reach reach : all_reaches)
    for (const Interface& entry : interfaces) {
      if (!entry.up || reach_of(entry) != reach || !admits(entry.name)) continue;
      // Prefer the interface's IPv4 address, if it has one.
      for (const Interface& other : interfaces)
        if (other.name == entry.name && other.address.family == 4 && reach_of(other) == reach) return &other;
      return &entry;
    }
  return nullptr;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return fail_errno("cannot list the network interfaces", errno, descriptor_remedy(errno));
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    auto address = from_sockaddr(entry->ifa_addr);
    if (!address || is_link_local(*address)) continue;
    address->port = 0;
    interfaces.push_back({entry->ifa_name, *address,
                          (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0,
                          (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return interfaces;
}

Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view filter_text) {
  if (!filter_text.empty()) {
    Filter filter = parse_filter(filter_text);
    // A filter such as "^docker" does not ask for loopback, so loopback still comes last.
    const Interface* const chosen = first(interfaces, [&](std::string_view name) { return filter.admits(name); });
    if (chosen) return *chosen;
    return fail(
        Code::invalid_argument,
        "STRAIT_SOCKET_IFNAME=\"" + std::string(filter_text) +
            "\" matches no network interface that is up and has an address; there are: " + describe(interfaces));
  }
  const Interface* const chosen =
      first(interfaces, [](std::string_view name) { return !has_one_of(bridge_prefixes, name); });
  if (chosen) return *chosen;
  return fail(Code::system_error, "no network interface is up, not even loopback; there are: " + describe(interfaces) +
                                      ". Bring one up (ip link set lo up), or choose one by STRAIT_SOCKET_IFNAME");
}

/// Asks through a socket, which belongs to the process's network namespace; /sys/class/net may show another one.
double rate_gbps(const Interface& interface) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto ask = [&](auto& question) {
    ifreq request{};
    interface.name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    request.ifr_data = reinterpret_cast<char*>(&question);
    return ::ioctl(any.get(), SIOCETHTOOL, &request) == 0;
  };
  ethtool_drvinfo about{};
  about.cmd = ETHTOOL_GDRVINFO;
  (void)ask(about);  // if it fails, the name is empty, and any rate is accepted
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  if (!ask(settings)) return 0;
  return rate_gbps({about.driver, strnlen(about.driver, sizeof about.driver)}, ethtool_cmd_speed(&settings));
}

double rate_gbps(std::string_view driver, std::uint32_t megabits) {
  // Interfaces of containers: they report 10 Gbit/s whatever is behind them.
  if (driver == "veth" || driver == "tun") return 0;
  constexpr double gbps_of_megabit = 1.0 / 8000;
  return megabits >= INT32_MAX ? 0 : megabits * gbps_of_megabit;  // SPEED_UNKNOWN is -1
}

Result<Interface> choose_interface(const Environment& environment) {
  STRAIT_ASSIGN(std::string filter, environment.text("STRAIT_SOCKET_IFNAME"));
  STRAIT_ASSIGN(std::vector<Interface> interfaces, list_interfaces());
  return choose_interface(interfaces, filter);
}

}  // namespace strait
