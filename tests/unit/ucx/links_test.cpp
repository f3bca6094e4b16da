// Links of TCP whose long messages go by UCX.
#include <atomic>

#include "transports/slots/segment.hpp"
#include "unit/tcp/messages.hpp"

namespace strait::testing {
namespace {

class UcxLinks : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto worker = ucx::Worker::open(0, 1);
    if (!worker && worker.error().code == Code::unsupported) GTEST_SKIP() << worker.error().message;
  }
};

/// Short ones, which overtake long ones, wait for these.
TEST_F(UcxLinks, EveryReaderGetsEveryMessageInOrder) {
  constexpr unsigned messages = 200;
  with_transports(
      4,
      [](std::uint32_t rank, TcpTransport& transport) {
        EXPECT_EQ(transport.name(), "tcp+ucx");
        const LinkEnd end = link_from_0(rank == 0, {1, 2, 3});
        if (rank == 0)
          write_messages(**transport.open_send(end), messages);
        else
          read_messages(**transport.open_receive(end), messages);
      },
      ByUcx::all);
}

/// By another host's ranks alone, of which there are none.
TEST_F(UcxLinks, RanksOfOneHostDoWithout) {
  with_transports(
      2, [](std::uint32_t, TcpTransport& transport) { EXPECT_EQ(transport.name(), "tcp"); }, ByUcx::far);
}

/// Neither does the rank that sends look after them, nor the one that is to get them.
TEST_F(UcxLinks, MessagesTravelBetweenIdleRanks) {
  std::atomic<bool> is_sent{false};
  with_transports(
      2,
      [&](std::uint32_t rank, TcpTransport& transport) {
        const LinkEnd end = link_from_0(rank == 0, {1});
        if (rank == 0) {
          write_messages(**transport.open_send(end), small.depth);
          is_sent = true;
          return;
        }
        ASSERT_TRUE(transport.open_receive(end));
        EXPECT_TRUE(soon([&] { return is_sent.load(); }));
        const std::uint64_t stream = slots::Key{slots::Key::Kind::link, end.tag, end.writer, end.readers}.hash();
        tcp::Engine& engine = transport.engine();
        EXPECT_TRUE(soon([&] {
          const std::lock_guard lock(engine.mutex());
          return engine.incoming(stream, 0).arrived == small.depth;
        }));
      },
      ByUcx::all);
}

TEST_F(UcxLinks, AFarewellLosesNothing) {
  std::atomic<bool> has_left{false};
  with_channels(2, [&](Channel& channel) {
    auto transport = tcp::open(channel, small, Deadline::after_ms(20'000), ByUcx::all);
    ASSERT_TRUE(transport) << transport.error().message;
    const LinkEnd end = link_from_0(channel.rank() == 0, {1});
    if (channel.rank() == 0) {
      write_messages(**(*transport)->open_send(end), small.depth);
      transport->reset();
      has_left.store(true);
    } else {
      EXPECT_TRUE(soon([&] { return has_left.load(); }));
      read_messages(**(*transport)->open_receive(end), small.depth);
      EXPECT_FALSE((*transport)->engine().has_died(0));
    }
    ASSERT_TRUE(channel.barrier(within_ms(20'000)));
  });
}

}  // namespace
}  // namespace strait::testing
