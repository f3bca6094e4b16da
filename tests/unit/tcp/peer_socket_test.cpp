// Frames over a connection: cut at any byte, longer than the socket accepts at once, and bytes that are not frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "failing_sockets.hpp"
#include "transports/tcp/peer_socket.hpp"

namespace strait::tcp {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t slot_bytes = 1 << 20;

struct Taken {
  FrameHeader header;
  Bytes payload;
};

Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

/// A PeerSocket whose peer is a bare socket.
class Pair {
 public:
  explicit Pair(const Bytes& unread = {}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    const int buffer_bytes = 100'000;  // less than what the tests send, whatever the system's default
    EXPECT_EQ(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes), 0);
    other_ = UniqueFd(ends[1]);
    place_.resize(slot_bytes);
    socket_ = PeerSocket(
        Socket(UniqueFd(ends[0])), unread, slot_bytes,
        [this](const FrameHeader&) {
          run_short_at_times();
          return has_place ? place_.data() : nullptr;
        },
        [this](const FrameHeader& header) {
          if (header.payload_bytes == 0) run_short_at_times();
          taken.push_back({header, Bytes(place_.begin(), place_.begin() + header.payload_bytes)});
          return accepts;
        });
  }
  PeerSocket& socket() { return socket_; }
  std::span<std::byte> place() { return place_; }
  void send(std::span<const std::byte> bytes) const {
    ASSERT_EQ(::send(other_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  Bytes receive() const {
    Bytes bytes(slot_bytes);
    const ssize_t got = ::recv(other_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }
  /// Receives `size` bytes, or fewer if no more come, while the socket continues to send.
  Bytes receive_all(std::size_t size) {
    Bytes bytes;
    while (bytes.size() < size) {
      const Bytes part = receive();
      if (part.empty()) break;
      bytes.insert(bytes.end(), part.begin(), part.end());
      socket_.flush();
    }
    return bytes;
  }
  void close_other() { other_.reset(); }

  std::vector<Taken> taken;
  bool has_place = true;
  bool accepts = true;
  bool is_short_at_times = false;  ///< every second time there is no memory

 private:
  void run_short_at_times() {
    if (is_short_at_times && ++times_ % 2 == 1) throw std::bad_alloc();
  }

  int times_ = 0;
  UniqueFd other_;
  Bytes place_;
  PeerSocket socket_;
};

Bytes stream_of(const std::vector<Taken>& frames) {
  Bytes stream;
  for (const Taken& frame : frames) {
    const HeaderBytes header = encode(frame.header);
    stream.insert(stream.end(), header.begin(), header.end());
    stream.insert(stream.end(), frame.payload.begin(), frame.payload.end());
  }
  return stream;
}

std::vector<Taken> example() {
  return {{{FrameKind::call, 0, 1, 2, 3}, {}},
          {{FrameKind::slot, 100, 77, 5, 100}, pattern(100, 1)},
          {{FrameKind::slot, 0, 77, 5, 0}, {}},
          {{FrameKind::slot, 50'000, ~std::uint64_t{0}, 1, 2}, pattern(50'000, 2)},
          {{FrameKind::released, 0, 77, 2, 0}, {}},
          {{FrameKind::error, 5, 0, 6, 0}, pattern(5, 3)}};
}

void expect_example(const std::vector<Taken>& taken) {
  const auto expected = example();
  ASSERT_EQ(taken.size(), expected.size());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i].header, expected[i].header) << "frame " << i;
    EXPECT_EQ(taken[i].payload, expected[i].payload) << "frame " << i;
  }
}

TEST(PeerSocket, FramesMayBeCutAnywhere) {
  const Bytes stream = stream_of(example());
  for (const std::size_t step : {std::size_t{1}, std::size_t{31}, std::size_t{33}, std::size_t{4000}, stream.size()}) {
    Pair pair;
    for (std::size_t begin = 0; begin < stream.size(); begin += step) {
      pair.send(std::span(stream).subspan(begin, std::min(step, stream.size() - begin)));
      pair.socket().read();
    }
    expect_example(pair.taken);
    EXPECT_TRUE(pair.socket().is_open());
  }
}

TEST(PeerSocket, WhatCameWithTheHandshakeComesFirst) {
  const Bytes stream = stream_of(example());
  for (const std::size_t unread : {std::size_t{1}, std::size_t{32}, std::size_t{200}, stream.size()}) {
    Pair pair(Bytes(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(unread)));
    pair.send(std::span(stream).subspan(unread));
    pair.socket().read();
    expect_example(pair.taken);
  }
}

TEST(PeerSocket, AFrameThatThereIsNoMemoryForComesAgain) {
  Pair pair;
  pair.is_short_at_times = true;
  pair.send(stream_of(example()));
  std::size_t shortages = 0;
  for (int i = 0; i < 20; ++i) {
    try {
      pair.socket().read();
    } catch (const std::bad_alloc&) {
      ++shortages;
    }
  }
  EXPECT_EQ(shortages, example().size());
  expect_example(pair.taken);
}

TEST(PeerSocket, SendsMoreThanTheSocketTakesAtOnce) {
  Pair pair;
  Bytes expected;
  std::vector<Bytes> payloads;
  for (unsigned i = 0; i < 20; ++i) payloads.push_back(pattern(i % 3 == 0 ? 0 : 300'000 + i, i));
  for (unsigned i = 0; i < 20; ++i) {
    const Taken frame{{FrameKind::slot, static_cast<std::uint32_t>(payloads[i].size()), i, i, i}, payloads[i]};
    pair.socket().queue(frame.header, payloads[i]);
    const Bytes bytes = stream_of({frame});
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  pair.socket().flush();
  EXPECT_TRUE(pair.socket().has_unsent());
  const Bytes received = pair.receive_all(expected.size());
  EXPECT_FALSE(pair.socket().has_unsent());
  EXPECT_EQ(received, expected);
}

TEST(PeerSocket, HasRoomForLastWordsHoweverMuchIsQueued) {
  const Taken frame{{FrameKind::signal, 0, 7, 0, 0}, {}}, last{{FrameKind::left, 0, 0, 0, 0}, {}};
  Pair pair;
  for (int i = 0; i < 3; ++i) pair.socket().queue(frame.header);
  for (int i = 0; i < 3; ++i) pair.socket().queue_last(last.header);
  pair.socket().flush();
  EXPECT_EQ(pair.receive(), stream_of({frame, frame, frame, last, last, last}));
}

TEST(PeerSocket, WhatIsLeftOfAPayloadMoves) {
  Pair pair;
  Bytes expected;
  std::vector<Bytes> slots(6, Bytes(slot_bytes));
  bool was_cut = false;
  for (unsigned i = 0; i < 6; ++i) {  // some frames are sent completely at once, one in part, and the last not at all
    Bytes payload = pattern(i == 2 ? 0 : 150'001 + i, i);
    const Taken frame{{FrameKind::slot, static_cast<std::uint32_t>(payload.size()), i, i, i}, payload};
    const Bytes bytes = stream_of({frame});
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    pair.socket().queue(frame.header, payload);
    pair.socket().queue({FrameKind::released, 0, i, 1, 0});
    const Bytes released = stream_of({{{FrameKind::released, 0, i, 1, 0}, {}}});
    expected.insert(expected.end(), released.begin(), released.end());
    pair.socket().flush();
    pair.socket().move_unsent(payload, slots[i].data());
    was_cut |= slots[i].front() == std::byte{} && slots[i][150'000] != std::byte{};
    std::fill(payload.begin(), payload.end(), std::byte{0xee});
  }
  EXPECT_TRUE(was_cut) << "no payload was sent in part";
  EXPECT_TRUE(pair.socket().has_unsent());
  const Bytes received = pair.receive_all(expected.size());
  EXPECT_EQ(received, expected);
}

TEST(PeerSocket, WhatIsArrivingMovesInTheMiddle) {
  constexpr std::size_t bytes = 50'000, first = 20'000;
  const Taken frame{{FrameKind::slot, bytes, 77, 5, 100}, pattern(bytes, 1)};
  const Bytes stream = stream_of({frame, frame});
  Pair pair;
  Bytes other(bytes);
  pair.send(std::span(stream).first(header_bytes + first));
  pair.socket().read();
  const Bytes before(pair.place().begin(), pair.place().end());
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + first, frame.payload.begin()));
  pair.socket().move_arriving(std::span(other), nullptr);  // no payload arrives there
  pair.socket().move_arriving(pair.place(), other.data());
  pair.send(std::span(stream).subspan(header_bytes + first));
  pair.socket().read();
  EXPECT_TRUE(std::equal(other.begin() + first, other.end(), frame.payload.begin() + first));
  ASSERT_EQ(pair.taken.size(), 2u);
  EXPECT_EQ(Bytes(pair.taken[0].payload.begin() + first, pair.taken[0].payload.end()),
            Bytes(before.begin() + first, before.begin() + bytes))
      << "the first place is not written any more";
  EXPECT_EQ(pair.taken[1].payload, frame.payload) << "the next payload goes where it is told";
}

TEST(PeerSocket, FramesBeforeTheEndCount) {
  Pair pair;
  pair.send(stream_of(example()));
  pair.close_other();
  for (int i = 0; i < 3; ++i) pair.socket().read();
  expect_example(pair.taken);
  EXPECT_FALSE(pair.socket().is_open());
  EXPECT_EQ(pair.socket().end_reason(), "it closed the connection");
  pair.socket().queue({FrameKind::left, 0, 0, 0, 0});
  pair.socket().flush();
  EXPECT_FALSE(pair.socket().has_unsent());
}

/// A rank whose sending fails first reads what the peer had sent before it ended.
TEST(PeerSocket, WhatThePeerSaidComesBeforeAFailureToSend) {
  Pair pair;
  pair.send(stream_of(example()));
  pair.close_other();
  pair.socket().queue({FrameKind::call, 0, 1, 2, 3});
  pair.socket().flush();
  EXPECT_FALSE(pair.socket().is_open());
  expect_example(pair.taken);
}

void expect_end(const Bytes& bytes, const char* reason) {
  Pair pair;
  pair.send(bytes);
  pair.socket().read();
  EXPECT_FALSE(pair.socket().is_open());
  EXPECT_THAT(pair.socket().end_reason(), HasSubstr(reason));
  EXPECT_TRUE(pair.taken.empty());
}

/// The shortage concerns this host and passes; the peer is not affected.
TEST(PeerSocket, AShortageOfTheSystemIsTriedAgain) {
  for (const int shortage : {ENOBUFS, ENOMEM}) {
    Pair pair;
    const Bytes stream = stream_of({{{FrameKind::signal, 0, 7, 0, 0}, {}}});
    pair.socket().queue({FrameKind::signal, 0, 7, 0, 0});
    testing::failing_sockets.fail(shortage, 1);
    pair.socket().flush();
    EXPECT_TRUE(pair.socket().take_shortage());
    EXPECT_TRUE(pair.socket().is_open() && pair.socket().has_unsent());
    pair.socket().flush();
    EXPECT_FALSE(pair.socket().has_unsent());
    EXPECT_EQ(pair.receive(), stream);
    pair.send(stream);
    testing::failing_sockets.fail(shortage, 1);
    pair.socket().read();
    EXPECT_TRUE(pair.socket().take_shortage());
    EXPECT_TRUE(pair.socket().is_open() && pair.taken.empty());
    pair.socket().read();
    EXPECT_EQ(pair.taken.size(), 1u);
    EXPECT_FALSE(pair.socket().take_shortage());
  }
  Pair pair;
  testing::failing_sockets.fail(EHOSTUNREACH, 1);
  pair.socket().read();
  EXPECT_FALSE(pair.socket().is_open());
}

TEST(PeerSocket, WhatIsAnnouncedIsFollowedByTheNextFrame) {
  Pair pair;
  pair.has_place = false;
  pair.send(stream_of({{{FrameKind::announced, 4, 1, 1, 1}, {}}, {{FrameKind::released, 0, 1, 1, 0}, {}}}));
  pair.socket().read();
  EXPECT_TRUE(pair.socket().is_open()) << pair.socket().end_reason();
  EXPECT_EQ(pair.taken.size(), 2u);
}

TEST(PeerSocket, WhatIsNoFrameEndsTheConnection) {
  expect_end(pattern(64, 9), "no frame");
  Bytes unknown_kind = stream_of({{{FrameKind::left, 0, 0, 0, 0}, {}}});
  unknown_kind[2] = static_cast<std::byte>(static_cast<int>(FrameKind::exiting) + 1);
  expect_end(unknown_kind, "no frame");
  const auto too_long = [](FrameKind kind, std::uint32_t bytes) { return stream_of({{{kind, bytes, 0, 0, 0}, {}}}); };
  expect_end(too_long(FrameKind::slot, slot_bytes + 1), "at most 1048576");
  expect_end(too_long(FrameKind::announced, slot_bytes + 1), "at most 1048576");
  expect_end(too_long(FrameKind::error, max_error_bytes + 1), "at most");
  expect_end(too_long(FrameKind::released, 1), "at most 0");
  const auto error_of = [](std::uint64_t code) { return stream_of({{{FrameKind::error, 0, 0, code, 0}, {}}}); };
  const auto last = static_cast<std::uint64_t>(Code::in_progress);
  for (const std::uint64_t code : {std::uint64_t{0}, last + 1, (std::uint64_t{1} << 32) + 6})
    expect_end(error_of(code), "unknown code");  // otherwise the communicator would fail with the code for success
}

TEST(PeerSocket, FramesThatTheEngineRefusesEndTheConnection) {
  Pair without_place;
  without_place.has_place = false;
  without_place.send(stream_of({{{FrameKind::slot, 4, 1, 1, 1}, pattern(4, 1)}}));
  without_place.socket().read();
  EXPECT_THAT(without_place.socket().end_reason(), HasSubstr("no place"));
  Pair refusing;
  refusing.accepts = false;
  refusing.send(stream_of({{{FrameKind::released, 0, 1, 1, 0}, {}}, {{FrameKind::left, 0, 0, 0, 0}, {}}}));
  refusing.socket().read();
  EXPECT_FALSE(refusing.socket().is_open());
  EXPECT_EQ(refusing.taken.size(), 1u);
}

}  // namespace
}  // namespace strait::tcp
