#pragma once

#include <atomic>
#include <cstring>
#include <vector>

#include "transports/tcp/tcp.hpp"
#include "unit/bootstrap/ranks.hpp"

/// Helpers for sending messages over links between ranks that are threads.
namespace strait::testing {

using tcp::ByUcx;
using tcp::TcpTransport;

inline constexpr tcp::Geometry small{.depth = 4, .slot_bytes = 64 << 10};
inline constexpr CallSignature call{3, 14};

template <class Body>
void with_transports(int ranks, const Body& body, ByUcx by_ucx = ByUcx::none) {
  with_channels(ranks, [&](Channel& channel) {
    auto transport = tcp::open(channel, small, Deadline::after_ms(20'000), by_ucx);
    ASSERT_TRUE(transport) << transport.error().message;
    body(static_cast<std::uint32_t>(channel.rank()), **transport);
    ASSERT_TRUE(channel.barrier(within_ms(20'000)));
  });
}

/// Waits until the condition holds, for at most 10 s; returns whether it does.
template <class Condition>
bool soon(const Condition& condition) {
  const Deadline deadline = Deadline::after_ms(10'000);
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::yield();
  }
  return true;
}

inline LinkEnd link_from_0(bool sends, std::vector<std::uint32_t> readers) {
  return {.sends = sends, .tag = 1, .writer = 0, .readers = std::move(readers)};
}

inline std::size_t length_of(unsigned message) { return message % 4 == 0 ? 0 : message * 977 % small.slot_bytes; }

/// Writes messages, alternately from slots and from memory that is overwritten at once. Calls `before` with the number
/// of each message first.
template <class Before>
void write_messages(SendLink& link, unsigned messages, const Before& before) {
  Bytes elsewhere(small.slot_bytes);
  EXPECT_TRUE(link.sends_from_anywhere());
  for (unsigned m = 0; m < messages; ++m) {
    std::byte* slot = nullptr;
    before(m);
    ASSERT_TRUE(soon([&] { return (slot = link.try_reserve()) != nullptr; })) << "message " << m;
    EXPECT_EQ(link.try_reserve(), slot);
    std::memset(m % 2 == 0 ? slot : elsewhere.data(), static_cast<int>(m), length_of(m));
    if (m % 2 == 0)
      link.publish({call.what, m}, length_of(m));
    else
      link.publish_from({call.what, m}, std::span(elsewhere).first(length_of(m)));
    std::memset(elsewhere.data(), 0xee, elsewhere.size());
  }
}

inline void write_messages(SendLink& link, unsigned messages) {
  write_messages(link, messages, [](unsigned) {});
}

inline void read_messages(ReceiveLink& link, unsigned messages) {
  for (unsigned m = 0; m < messages; ++m) {
    CallSignature seen;
    const std::byte* slot = nullptr;
    ASSERT_TRUE(soon([&] { return (slot = link.try_acquire(seen)) != nullptr; })) << "message " << m;
    EXPECT_EQ(seen, (CallSignature{call.what, m}));
    for (std::size_t i = 0; i < length_of(m); ++i) ASSERT_EQ(slot[i], static_cast<std::byte>(m));
    link.release();
  }
}

/// Checks that everything a rank published before it left is delivered, however much it is and whatever the reader does
/// meanwhile.
inline void expect_farewell_loses_nothing(ByUcx by_ucx) {
  std::atomic<bool> has_left{false};
  with_channels(2, [&](Channel& channel) {
    auto transport = tcp::open(channel, small, Deadline::after_ms(20'000), by_ucx);
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

}  // namespace strait::testing
