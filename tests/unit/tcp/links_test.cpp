// The transport alone, between ranks that are threads: links to several readers, signals, and news of other ranks.
#include <atomic>

#include "unit/tcp/messages.hpp"

namespace strait::testing {
namespace {

TEST(TcpLinks, EveryReaderGetsEveryMessageInOrder) {
  constexpr unsigned messages = 200;
  with_transports(4, [](std::uint32_t rank, TcpTransport& transport) {
    const LinkEnd end = link_from_0(rank == 0, {1, 2, 3});
    if (rank == 0)
      write_messages(**transport.open_send(end), messages);
    else
      read_messages(**transport.open_receive(end), messages);
  });
}

/// Messages that are awaited arrive directly at the wanted place, unless they belong to another call or have another
/// length. Every eighth message is sent only when it is awaited, the others at any time.
TEST(TcpLinks, MessagesArriveWhereTheyAreWanted) {
  constexpr unsigned messages = 200;
  std::atomic<unsigned> asked{0};  ///< number of messages that have been asked for
  with_transports(2, [&](std::uint32_t rank, TcpTransport& transport) {
    const LinkEnd end = link_from_0(rank == 0, {1});
    if (rank == 0)
      return write_messages(**transport.open_send(end), messages,
                            [&](unsigned m) { EXPECT_TRUE(m % 8 != 3 || soon([&] { return asked.load() > m; })); });
    ReceiveLink& link = **transport.open_receive(end);
    Bytes wanted(small.slot_bytes);
    for (unsigned m = 0; m < messages; ++m) {
      std::fill(wanted.begin(), wanted.end(), std::byte{0xee});
      const bool is_other_call = m % 5 == 0, is_other_length = m % 7 == 0;
      const std::size_t length = length_of(m);
      const auto place = std::span(wanted).first(is_other_length ? length + 1 : length);
      const CallSignature expected{call.what + (is_other_call ? 1 : 0), m};
      CallSignature seen;
      const std::byte* at = nullptr;
      ASSERT_TRUE(soon([&] {
        at = link.try_acquire_into(place, expected, seen);
        asked.store(m + 1);
        return at != nullptr;
      }));
      EXPECT_EQ(link.try_acquire_into(place, expected, seen), at);
      EXPECT_EQ(seen, (CallSignature{call.what, m}));
      for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(at[i], static_cast<std::byte>(m));
      if (at == wanted.data()) {
        EXPECT_FALSE(is_other_call || is_other_length);
      } else {
        EXPECT_TRUE(m % 8 != 3 || is_other_call || is_other_length) << "message " << m;
        for (const std::byte each : wanted) ASSERT_EQ(each, std::byte{0xee});
      }
      link.release();
    }
  });
}

/// Slices of a call look alike. If the second arrives before the first has been looked at, it must get a place of its
/// own.
TEST(TcpLinks, TheNextOneDoesNotArriveOverOneThatNobodyHasTaken) {
  constexpr std::size_t bytes = 1000;
  std::atomic<bool> is_awaited{false};
  with_transports(2, [&](std::uint32_t rank, TcpTransport& transport) {
    const LinkEnd end = link_from_0(rank == 0, {1});
    const SignalEnd has_sent{.signals = rank == 0, .tag = 2, .from = 0, .to = 1};
    if (rank == 0) {
      SendLink& link = **transport.open_send(end);
      EXPECT_TRUE(soon([&] { return is_awaited.load(); }));
      for (const int value : {7, 8}) {
        std::memset(link.try_reserve(), value, bytes);
        link.publish(call, bytes);
      }
      return (*transport.open_signal(has_sent))->add();
    }
    ReceiveLink& link = **transport.open_receive(end);
    SignalWaiter& waiter = **transport.open_wait(has_sent);
    Bytes first(bytes), second(bytes);
    CallSignature seen;
    EXPECT_EQ(link.try_acquire_into(std::span(first), call, seen), nullptr);
    is_awaited.store(true);
    EXPECT_TRUE(soon([&] { return waiter.try_take(); }));  // by then both have arrived
    for (auto [place, value] : {std::pair{&first, 7}, {&second, 8}}) {
      const std::byte* const at = link.try_acquire_into(std::span(*place), call, seen);
      ASSERT_NE(at, nullptr);
      EXPECT_EQ(Bytes(at, at + bytes), Bytes(bytes, static_cast<std::byte>(value)));
      link.release();
    }
  });
}

/// The next message, before a place for it has been named, does not overwrite the place of the one before.
TEST(TcpLinks, WhatHasBeenTakenIsNotWrittenAgain) {
  constexpr std::size_t bytes = 1000;
  std::atomic<int> turn{0};
  with_transports(2, [&](std::uint32_t rank, TcpTransport& transport) {
    const LinkEnd end = link_from_0(rank == 0, {1});
    const SignalEnd has_sent{.signals = rank == 0, .tag = 2, .from = 0, .to = 1};
    if (rank == 0) {
      SendLink& link = **transport.open_send(end);
      for (const int value : {1, 2}) {
        EXPECT_TRUE(soon([&] { return turn.load() >= value; }));
        std::memset(link.try_reserve(), value, bytes);
        link.publish(call, bytes);
        (*transport.open_signal(has_sent))->add();
      }
      return;
    }
    ReceiveLink& link = **transport.open_receive(end);
    SignalWaiter& waiter = **transport.open_wait(has_sent);
    Bytes place(bytes);
    CallSignature seen;
    EXPECT_EQ(link.try_acquire_into(std::span(place), call, seen), nullptr);
    for (const int value : {1, 2}) {
      turn.store(value);
      EXPECT_TRUE(soon([&] { return waiter.try_take(); }));  // by then the message has arrived
      EXPECT_EQ(place, Bytes(bytes, std::byte{1}));
      ASSERT_EQ(link.try_acquire(seen) == place.data(), value == 1);
      link.release();
    }
  });
}

TEST(TcpLinks, WhatIsAbandonedIsNotWrittenAnyMore) {
  constexpr std::size_t bytes = 1000;
  for (const bool abandons : {false, true}) {
    std::atomic<bool> is_ready{false};
    with_transports(2, [&](std::uint32_t rank, TcpTransport& transport) {
      const LinkEnd end = link_from_0(rank == 0, {1});
      const SignalEnd has_sent{.signals = rank == 0, .tag = 2, .from = 0, .to = 1};
      if (rank == 0) {
        SendLink& link = **transport.open_send(end);
        EXPECT_TRUE(soon([&] { return is_ready.load(); }));
        std::memset(link.try_reserve(), 7, bytes);
        link.publish(call, bytes);
        return (*transport.open_signal(has_sent))->add();
      }
      ReceiveLink& link = **transport.open_receive(end);
      SignalWaiter& waiter = **transport.open_wait(has_sent);
      Bytes wanted(bytes, std::byte{0xee});
      CallSignature seen;
      EXPECT_EQ(link.try_acquire_into(std::span(wanted), call, seen), nullptr);
      if (abandons) transport.abandon();
      is_ready.store(true);
      EXPECT_TRUE(soon([&] { return waiter.try_take(); }));  // by then the message has arrived
      EXPECT_EQ(wanted, Bytes(bytes, abandons ? std::byte{0xee} : std::byte{7}));
      const std::byte* at = link.try_acquire(seen);
      ASSERT_NE(at, nullptr);
      EXPECT_EQ(Bytes(at, at + bytes), Bytes(bytes, std::byte{7}));
    });
  }
}

TEST(TcpLinks, AWriterStopsWhereAReaderHoldsItsSlots) {
  std::atomic<bool> is_full{false};
  with_transports(3, [&](std::uint32_t rank, TcpTransport& transport) {
    const LinkEnd end = link_from_0(rank == 0, {1, 2});
    if (rank == 0) {
      SendLink& link = **transport.open_send(end);
      write_messages(link, small.depth);
      EXPECT_TRUE(soon([&] { return link.try_reserve() == nullptr && link.holders() == std::vector<std::size_t>{1}; }));
      is_full.store(true);
      EXPECT_TRUE(soon([&] { return link.try_reserve() != nullptr; }));
      EXPECT_TRUE(link.holders().empty());
    } else {
      EXPECT_TRUE(rank == 1 || soon([&] { return is_full.load(); }));
      read_messages(**transport.open_receive(end), small.depth);
    }
  });
}

TEST(TcpLinks, SignalsCountAlsoToOneself) {
  with_transports(2, [](std::uint32_t rank, TcpTransport& transport) {
    const auto signal = [](std::uint32_t from, std::uint32_t to) {
      return SignalEnd{.signals = true, .tag = 2, .from = from, .to = to};
    };
    SignalWaiter& waiter = **transport.open_wait(signal(1 - rank, rank));
    for (int i = 0; i < 50; ++i) (*transport.open_signal(signal(rank, 1 - rank)))->add();
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(soon([&] { return waiter.try_take(); })) << i;
    EXPECT_FALSE(waiter.try_take());
    SignalWaiter& own = **transport.open_wait(signal(rank, rank));
    EXPECT_FALSE(own.try_take());
    (*transport.open_signal(signal(rank, rank)))->add();
    EXPECT_TRUE(own.try_take());
    EXPECT_FALSE(own.try_take());
  });
}

TEST(TcpLinks, ALinkToOneselfIsRefused) {
  with_transports(2, [](std::uint32_t rank, TcpTransport& transport) {
    EXPECT_TRUE(rank != 0 || !transport.open_send(link_from_0(true, {0, 1})));
  });
}

/// No rank calls into its transport while the news travel: the transports' own threads must deliver them.
TEST(TcpControl, CallsErrorsAndFarewellsReachIdleRanks) {
  std::atomic<int> left{0};
  with_channels(3, [&](Channel& channel) {
    const auto rank = static_cast<std::uint32_t>(channel.rank());
    auto opened = tcp::open(channel, small, Deadline::after_ms(20'000));
    ASSERT_TRUE(opened) << opened.error().message;
    std::unique_ptr<TcpTransport> transport = std::move(*opened);
    transport->post_call(1, {call.what, rank}, nullptr, nullptr);
    for (std::uint32_t peer = 0; peer < 3; ++peer) {
      EXPECT_TRUE(soon([&] { return transport->peer_call(1, peer).has_value(); }));
      EXPECT_EQ(transport->peer_call(1, peer)->signature, (CallSignature{call.what, peer}));
    }
    EXPECT_FALSE(transport->peer_call(2, 0));
    EXPECT_TRUE(transport->has_peer_calls(1));
    EXPECT_FALSE(transport->has_peer_calls(2));
    ASSERT_TRUE(channel.barrier(within_ms(20'000)));

    Control& control = transport->engine().control();
    RankControl& of_1 = transport->engine().rank_control(1);
    if (rank == 1) {
      of_1.raised.state.store(1);
      write_error(control, of_1, 1, static_cast<std::uint32_t>(Code::timeout), "too late");
    }
    EXPECT_TRUE(soon([&] { return control.abort.load() != 0; }));
    EXPECT_EQ(control.abort.load(), 2u);
    EXPECT_STREQ(of_1.raised.message, "too late");
    EXPECT_EQ(of_1.raised.code, static_cast<std::uint32_t>(Code::timeout));
    ASSERT_TRUE(channel.barrier(within_ms(20'000)));

    if (rank == 2) {
      transport.reset();
      left.store(1);
    } else {
      EXPECT_TRUE(soon([&] { return transport->engine().rank_control(2).left.load() != 0; }));
      EXPECT_FALSE(transport->engine().has_died(2));
      EXPECT_TRUE(soon([&] { return transport->has_peer_calls(2) || left.load() != 0; }));
    }
    ASSERT_TRUE(channel.barrier(within_ms(20'000)));
  });
}

/// A rank that finds that all ranks have called has already told them of its own call, whatever it does next.
TEST(TcpControl, CallsThatAllKnowOfHaveBeenTold) {
  std::atomic<bool> is_told{false};
  with_transports(2, [&](std::uint32_t rank, TcpTransport& transport) {
    if (rank == 0) {
      transport.post_call(1, call, nullptr, nullptr);
      EXPECT_TRUE(soon([&] { return transport.has_peer_calls(1); }));
      is_told = true;
      return;
    }
    EXPECT_TRUE(soon([&] { return transport.peer_call(1, 0).has_value(); }));
    tcp::Engine& engine = transport.engine();
    const std::lock_guard lock(engine.mutex());  // so that the engine's thread does nothing
    engine.post(1, call);
    EXPECT_TRUE(engine.has_peer_calls(1));
    EXPECT_TRUE(soon([&] { return is_told.load(); }));
  });
}

TEST(TcpControl, AFarewellLosesNothing) { expect_farewell_loses_nothing(ByUcx::none); }

TEST(TcpMesh, JoinsAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 5, 6, 24})
    with_transports(ranks, [&](std::uint32_t rank, TcpTransport& transport) {
      const auto n = static_cast<std::uint32_t>(ranks);
      for (std::uint32_t peer = 0; peer < n; ++peer)
        (*transport.open_signal({.signals = true, .tag = 0, .from = rank, .to = peer}))->add();
      for (std::uint32_t peer = 0; peer < n; ++peer) {
        SignalWaiter& waiter = **transport.open_wait({.signals = false, .tag = 0, .from = peer, .to = rank});
        EXPECT_TRUE(soon([&] { return waiter.try_take(); })) << rank << " from " << peer;
      }
    });
}

}  // namespace
}  // namespace strait::testing
