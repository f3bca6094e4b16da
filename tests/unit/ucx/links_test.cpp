// TCP links whose long messages travel by UCX.
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

/// Short messages overtake long ones on the way, and must wait for them.
TEST_F(UcxLinks, EveryReaderGetsEveryMessageInOrder) {
  constexpr unsigned messages = 200;
  with_transports(
      4,
      [](std::uint32_t rank, TcpTransport& transport) {
        EXPECT_EQ(transport.name(), "tcp+ucx");
        const LinkEnd end = link_from_0(rank == 0, {1, 2, 3});
        if (rank != 0) return read_messages(**transport.open_receive(end), messages);
        write_messages(**transport.open_send(end), messages);
        std::uint64_t long_ones = 0;
        for (unsigned m = 0; m < messages; ++m) long_ones += length_of(m) >= 16 << 10 ? 1 : 0;
        const std::lock_guard lock(transport.engine().mutex());
        for (const std::uint32_t reader : end.readers) EXPECT_EQ(transport.engine().ucx()->sent_to(reader), long_ones);
      },
      ByUcx::all);
}

/// `other_hosts`: UCX is used only between hosts, and here there is one host.
TEST_F(UcxLinks, RanksOfOneHostDoWithout) {
  with_transports(
      2, [](std::uint32_t, TcpTransport& transport) { EXPECT_EQ(transport.name(), "tcp"); }, ByUcx::other_hosts);
}

/// Neither the sending rank nor the receiving one does anything for its messages while they travel.
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
        const std::uint64_t stream = slots::Key::of(end).hash();
        tcp::Engine& engine = transport.engine();
        EXPECT_TRUE(soon([&] {
          const std::lock_guard lock(engine.mutex());
          return engine.incoming(stream, 0).arrived == small.depth;
        }));
      },
      ByUcx::all);
}

TEST_F(UcxLinks, AFarewellLosesNothing) { expect_farewell_loses_nothing(ByUcx::all); }

}  // namespace
}  // namespace strait::testing
