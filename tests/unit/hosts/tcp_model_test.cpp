// Which plans ranks choose that are connected by TCP.
#include "communicator/tcp_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "select/selector.hpp"

namespace strait {
namespace {

/// Returns ranks of `hosts` hosts with `each` ranks each.
std::vector<PeerInfo> peers_of(std::uint32_t hosts, std::uint32_t each) {
  std::vector<PeerInfo> peers(std::size_t{hosts} * each);
  for (std::size_t rank = 0; rank < peers.size(); ++rank) peers[rank].host_id = "host " + std::to_string(rank / each);
  return peers;
}

Selector selector_of(const std::vector<PeerInfo>& peers) {
  const auto ranks = static_cast<std::uint32_t>(peers.size());
  Selector::Settings settings;
  settings.model = host_model(ranks, ranks, {}, Selector::writers_in_model(ranks));
  settings.options.max_slice_bytes = 256 << 10;
  settings.multicast = false;
  put_tcp_between(settings.model, peers);
  return Selector(settings);
}

/// Each slice costs system calls at both ends, so a message is not cut finely for the sake of pipelining.
TEST(TcpModel, SlicesAreLong) {
  for (const std::uint32_t hosts : {1, 2})
    for (const Collective collective : {Collective::broadcast, Collective::reduce})
      for (const std::size_t bytes : {16 << 10, 64 << 10, 256 << 10, 1 << 20}) {
        Selector selector = selector_of(peers_of(hosts, 2 / hosts));
        SelectQuery query;
        query.collective = collective;
        query.type = DataType::uint8;
        query.op = ReduceOp::max;
        query.count = bytes;
        const auto choice = selector.choose(query);
        ASSERT_TRUE(choice) << choice.error().message;
        EXPECT_GE((*choice)->slice_bytes, std::min<std::size_t>(bytes, 64 << 10)) << bytes << " on " << hosts;
      }
}

/// Data that leaves a host uses one network interface, whichever ranks it is between; data that stays uses none.
TEST(TcpModel, AHostsRanksShareItsNetwork) {
  const auto peers = peers_of(2, 3);
  ClockModel model = host_model(6, 6);
  put_tcp_between(model, peers);
  const auto path = [&](std::size_t from, std::size_t to) -> const ClockPath& { return model.paths[from * 6 + to]; };
  for (std::size_t from = 0; from < 6; ++from)
    for (std::size_t to = 0; to < 6; ++to) {
      if (peers[from].same_host(peers[to])) {
        EXPECT_TRUE(path(from, to).resources.empty());
        continue;
      }
      ASSERT_EQ(path(from, to).resources.size(), 2u);
      EXPECT_EQ(path(from, to).resources, path(from / 3 * 3, to / 3 * 3).resources);
      EXPECT_NE(path(from, to).resources, path(to, from).resources);
      for (const std::uint16_t each : path(from, to).resources)
        EXPECT_EQ(model.resources[each].gbps, path(from, to).gbps);
    }
}

}  // namespace
}  // namespace strait
