#include "bootstrap/doorman.hpp"

#include <unistd.h>

#include <atomic>
#include <optional>

#include "bootstrap/connect_with_key.hpp"
#include "ranks.hpp"

namespace strait::testing {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// A doorman at a port of this host.
struct Door {
  explicit Door(Doorman::Limits limits = {}) : Door(*listen_at(address_of("127.0.0.1")), limits) {}

  Socket knock() const { return *connect_to(address, within_ms(5000)); }
  std::size_t admit(std::int64_t within_ms) {
    std::vector<pollfd> fds;
    doorman.watch(fds);
    poll_slice(fds, Deadline::after_ms(within_ms));
    return doorman.admit().size();
  }

  Key key = random_key();
  SocketAddress address;
  Doorman doorman;

 private:
  Door(Socket listener, Doorman::Limits limits)
      : address(*listener.local_address()), doorman(std::move(listener), key, Purpose::data, limits) {}
};

TEST(Doorman, TakesInNoMoreAtATimeThanItMay) {
  Door door({.accepts = 4});
  for (int i = 0; i < 10; ++i) door.knock();  // and gone
  for (const std::int64_t dropped : {0, 4, 8, 10, 10}) {
    EXPECT_EQ(door.admit(0), 0U);
    EXPECT_EQ(door.doorman.dropped(), dropped);
  }
}

/// A peer that takes the steps of the handshake when it is told to.
class Member {
 public:
  explicit Member(Door& door) : door_(door), connection_(door.knock(), "doorman") {
    connection_.send(FrameType::hello, handshake_.hello());
  }
  /// Lets the doorman answer the hello, which takes no longer than it takes to arrive.
  void be_challenged() {
    while (!challenge_ && !deadline_.expired()) {
      EXPECT_EQ(door_.admit(10), 0U);
      connection_.fill();
      challenge_ = *connection_.next();
    }
    ASSERT_TRUE(challenge_);
  }
  void prove() { connection_.send(FrameType::proof, *handshake_.answer(*challenge_)); }

 private:
  Door& door_;
  const Deadline deadline_ = Deadline::after_ms(5000);
  Connection connection_;
  const ClientHandshake handshake_{door_.key, Purpose::data, "doorman"};
  std::optional<Frame> challenge_;
};

void expect_admitted(Door& door, std::size_t members) {
  const Deadline deadline = Deadline::after_ms(5000);
  std::size_t admitted = 0;
  while (admitted < members && !deadline.expired()) admitted += door.admit(10);
  EXPECT_EQ(admitted, members);
}

TEST(Doorman, DropsTheSilentBeforeThoseWhoSaidHello) {
  Door door({.pending = 8, .accepts = 4});
  Member member(door);
  member.be_challenged();
  std::vector<Socket> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(door.knock());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(door.admit(0), 0U);
  EXPECT_EQ(door.doorman.dropped(), 30 - 7);
  member.prove();
  expect_admitted(door, 1);
}

TEST(Doorman, LetsMembersWaitRatherThanDropOthers) {
  Door door({.handshake_ms = 60'000, .pending = 2});
  Member first(door), second(door);
  first.be_challenged();
  second.be_challenged();
  Member third(door);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(door.admit(10), 0U);
  EXPECT_EQ(door.doorman.dropped(), 0);
  first.prove();
  second.prove();
  expect_admitted(door, 2);
  third.be_challenged();
  third.prove();
  expect_admitted(door, 1);
}

TEST(Doorman, DropsTheSlowWhereTheyKeepOthersOut) {
  Door door({.handshake_ms = 400, .pending = 1});  // slow: an eighth of it
  Member slow(door);
  slow.be_challenged();
  Member quick(door);
  quick.be_challenged();
  EXPECT_EQ(door.doorman.dropped(), 1);
  quick.prove();
  expect_admitted(door, 1);
}

/// Threads that connect as fast as they can, say something else and go, until it is destroyed.
class Flood {
 public:
  Flood(const SocketAddress& address, int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this, address](const std::stop_token& stop) {
        sockaddr_storage storage;
        const socklen_t size = address.to_sockaddr(storage);
        while (!stop.stop_requested()) {
          const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
          // Nobody who is not accepted any more holds the end of the test up.
          const timeval patience{0, 200'000};
          ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
          if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) continue;
          (void)!::send(fd.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
          // A reset leaves no port behind in TIME_WAIT, which other tests would lack.
          const linger reset{1, 0};
          ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
          knocks_.fetch_add(1);
        }
      });
  }
  int knocks() const { return knocks_.load(); }

 private:
  std::atomic<int> knocks_{0};
  std::vector<std::jthread> threads_;
};

TEST(Doorman, AFloodOfStrangersKeepsNobodyOut) {
  Door door;
  Flood flood(door.address, 2);
  const Deadline start = Deadline::after_ms(10'000);
  while (flood.knocks() < 500 && !start.expired()) std::this_thread::sleep_for(Milliseconds(1));
  constexpr int members = 100;
  std::jthread caller([&] {
    for (int i = 0; i < members; ++i) {
      auto connection = connect_with_key(door.address, door.key, Purpose::data, {}, within_ms(30'000));
      ASSERT_TRUE(connection) << i << ": " << connection.error().message;
      std::this_thread::sleep_for(Milliseconds(10));
    }
  });
  const Deadline deadline = Deadline::after_ms(40'000);
  std::size_t admitted = 0;
  while (admitted < members && !deadline.expired()) admitted += door.admit(100);
  EXPECT_EQ(admitted, members);
  EXPECT_GT(door.doorman.dropped(), 1000);
}

}  // namespace
}  // namespace strait::testing
