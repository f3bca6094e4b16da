#include "bootstrap/interface.hpp"

#include "ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Interface interface(const char* name, const char* address, bool up = true) {
  return {name, address_of(address), up, std::string(name) == "lo"};
}

const std::vector<Interface> typical = {
    interface("lo", "127.0.0.1"),   interface("docker0", "172.17.0.1"),    interface("eth0", "2001:db8::1"),
    interface("eth0", "192.0.2.1"), interface("eth1", "192.0.2.2", false), interface("ib0", "198.51.100.1"),
    interface("lo", "::1")};

std::string chosen(std::string_view filter, const std::vector<Interface>& interfaces = typical) {
  auto result = choose_interface(interfaces, filter);
  return result ? result->name + " " + result->address.to_string() : result.error().message;
}

TEST(ChooseInterface, FollowsTheFilter) {
  EXPECT_EQ(chosen(""), "eth0 192.0.2.1:0");
  EXPECT_EQ(chosen("ib"), "ib0 198.51.100.1:0");
  EXPECT_EQ(chosen("ib,eth"), "eth0 192.0.2.1:0") << "the host's order counts";
  EXPECT_EQ(chosen("=docker0"), "docker0 172.17.0.1:0");
  EXPECT_EQ(chosen("^eth,docker"), "ib0 198.51.100.1:0");
  EXPECT_EQ(chosen("^docker"), "eth0 192.0.2.1:0") << "loopback comes last unless it is named";
  EXPECT_EQ(chosen("^=eth0,docker0"), "ib0 198.51.100.1:0");
  EXPECT_EQ(chosen("lo"), "lo 127.0.0.1:0");
}

TEST(ChooseInterface, NothingSuitableIsAnErrorThatListsWhatThereIs) {
  EXPECT_THAT(chosen("=eth"), AllOf(HasSubstr("STRAIT_SOCKET_IFNAME=\"=eth\""), HasSubstr("ib0 (198.51.100.1)")));
  EXPECT_THAT(chosen("eth1"), HasSubstr("eth1 (192.0.2.2, down)"));
  EXPECT_THAT(chosen("", {}), HasSubstr("no network interface is up"));
}

TEST(ChooseInterface, FallsBackToIpv6AndToLoopback) {
  EXPECT_EQ(chosen("", {interface("eth0", "2001:db8::1")}), "eth0 [2001:db8::1]:0");
  EXPECT_EQ(chosen("", {interface("docker0", "172.17.0.1"), interface("lo", "127.0.0.1")}), "lo 127.0.0.1:0");
}

/// As a server's management controller has, which leads nowhere else.
TEST(ChooseInterface, TakesALinkLocalAddressOnlyWhereThereIsNoOther) {
  const Interface idrac = interface("idrac", "169.254.0.2"), eth0 = interface("eth0", "192.0.2.1"),
                  lo = interface("lo", "127.0.0.1");
  EXPECT_EQ(chosen("", {lo, idrac, eth0}), "eth0 192.0.2.1:0");
  EXPECT_EQ(chosen("^docker", {idrac, lo, eth0}), "eth0 192.0.2.1:0");
  EXPECT_EQ(chosen("idrac", {idrac, eth0}), "idrac 169.254.0.2:0") << "it is named";
  EXPECT_EQ(chosen("", {lo, idrac}), "idrac 169.254.0.2:0") << "two hosts at one cable may have no other";
  EXPECT_EQ(chosen("", {interface("eth0", "169.254.7.7"), eth0}), "eth0 192.0.2.1:0");
  EXPECT_EQ(chosen("", {interface("eth0", "169.254.7.7"), interface("eth0", "2001:db8::1")}), "eth0 [2001:db8::1]:0");
  EXPECT_EQ(chosen("", {interface("eth0", "169.253.0.1"), interface("eth1", "192.0.2.2")}), "eth0 169.253.0.1:0");
}

TEST(ChooseInterface, TakesATunnelOnlyWhereThereIsNoOther) {
  const Interface lo = interface("lo", "127.0.0.1"), eth0 = interface("eth0", "192.0.2.1");
  for (const char* const name : {"tun0", "wg0"}) {
    const Interface tunnel = interface(name, "10.8.0.2");
    EXPECT_EQ(chosen("", {tunnel, lo, eth0}), "eth0 192.0.2.1:0");
    EXPECT_EQ(chosen("", {lo, tunnel}), std::string(name) + " 10.8.0.2:0");
  }
}

TEST(ChooseInterface, TakesNoEndOfAContainersNetwork) {
  for (const char* const name : {"docker0", "flannel.1", "cilium_host", "lxc1234", "cali1234", "veth1", "br-12"})
    EXPECT_EQ(chosen("", {interface(name, "10.1.0.1"), interface("lo", "127.0.0.1")}), "lo 127.0.0.1:0") << name;
}

TEST(ChooseInterface, ThisHostHasLoopback) {
  auto all = list_interfaces();
  ASSERT_TRUE(all);
  EXPECT_EQ(choose_interface(*all, "lo")->address, address_of("127.0.0.1"));
  EXPECT_EQ(rate_gbps(*choose_interface(*all, "lo")), 0) << "it has none";
}

TEST(InterfaceRate, IsWhatTheDriverSays) {
  EXPECT_EQ(rate_gbps("mlx5_core", 10'000), 1.25);
  EXPECT_EQ(rate_gbps("", 200'000), 25);
  EXPECT_EQ(rate_gbps("virtio_net", 0xffffffff), 0);
  EXPECT_EQ(rate_gbps("bonding", 0), 0);
  for (const char* const driver : {"veth", "tun"}) EXPECT_EQ(rate_gbps(driver, 10'000), 0);
}

TEST(InterfaceRate, IsUnknownWhereThereIsNoInterface) {
  EXPECT_EQ(rate_gbps(interface("no-such-name-here", "192.0.2.1")), 0);
}

}  // namespace
}  // namespace strait::testing
