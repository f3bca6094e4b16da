// An engine that has no memory for a message reports that, and continues to serve its connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

using ::testing::HasSubstr;

TEST(EngineWithoutMemory, AMessageWithoutAPlaceFailsTheCommunicator) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::vector<MeshPeer> mesh(2);
  mesh[1].socket = Socket(UniqueFd(ends[0]));
  const UniqueFd peer(ends[1]);
  // No machine has the memory for such slots.
  std::optional<Engine> engine(std::in_place, 0, Geometry{.depth = 4, .slot_bytes = std::size_t{1} << 60},
                               std::move(mesh));
  ASSERT_TRUE(engine->start());

  const HeaderBytes message = encode({FrameKind::slot, header_bytes, 77, 0, 0});
  for (int i = 0; i < 2; ++i)  // the second is the payload of the first
    ASSERT_EQ(::send(peer.get(), message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
  std::vector<std::byte> heard(4 * sizeof(ErrorRecord));
  ASSERT_GE(::recv(peer.get(), heard.data(), heard.size(), 0), static_cast<ssize_t>(header_bytes));
  const auto error = decode(std::span(heard).first<header_bytes>(), 0);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, FrameKind::error);
  EXPECT_EQ(error->a, static_cast<std::uint64_t>(Code::out_of_memory));
  EXPECT_EQ(engine->rank_control(0).raised.code, static_cast<std::uint32_t>(Code::out_of_memory));
  EXPECT_THAT(engine->rank_control(0).raised.message, HasSubstr("ulimit -v"));
  {
    const std::lock_guard lock(engine->mutex());
    engine->abandon_places();
    EXPECT_THROW(engine->incoming(77, 1), std::bad_alloc);
    EXPECT_THROW(engine->outgoing(78, {1}), std::bad_alloc);
    EXPECT_TRUE(engine->is_short_of_memory());
  }
  EXPECT_FALSE(engine->has_died(1)) << "the connection is as good as before";

  std::jthread end([&] { engine.reset(); });
  ASSERT_EQ(::recv(peer.get(), heard.data(), heard.size(), 0), static_cast<ssize_t>(header_bytes));
  const auto goodbye = decode(std::span(heard).first<header_bytes>(), 0);
  ASSERT_TRUE(goodbye);
  EXPECT_EQ(goodbye->kind, FrameKind::left);
}

}  // namespace
}  // namespace strait::tcp
