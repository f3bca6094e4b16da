// An engine whose peers are bare sockets, which send data that Strait would not send, or send it in pieces.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "failing_sockets.hpp"
#include "transports/tcp/engine.hpp"

namespace strait::tcp {
namespace {

/// Waits until the condition holds, or until the limit has passed; returns whether it holds.
template <class Condition>
bool soon(const Condition& condition, std::int64_t limit_ms = 10'000) {
  const Deadline deadline = Deadline::after_ms(limit_ms);
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

/// Rank 0's engine. The test holds the other ends of its connections to ranks 1 and 2.
class BarePeers : public ::testing::Test {
 protected:
  BarePeers() { connect({}); }
  /// Makes new connections and a new engine. `process` is a pidfd of rank 1, if that is on this host.
  void connect(UniqueFd process) {
    peers_ = {};
    std::vector<MeshPeer> mesh(3);
    mesh[1].pidfd = std::move(process);
    for (std::size_t rank : {1, 2}) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
      mesh[rank].socket = Socket(UniqueFd(ends[0]));
      peers_[rank] = UniqueFd(ends[1]);
    }
    engine_ = std::make_unique<Engine>(0, Geometry{.depth = 4, .slot_bytes = 4096}, std::move(mesh));
    EXPECT_TRUE(engine_->start());
  }
  /// Returns once the engine has read the bytes, or will not read any more from that rank.
  void send(std::uint32_t rank, std::span<const std::byte> bytes) {
    const int fd = peers_[rank].get();
    while (!bytes.empty() && !engine_->has_died(rank)) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    int left = 0;
    EXPECT_TRUE(soon([&] { return engine_->has_died(rank) || (ioctl(fd, SIOCOUTQ, &left) == 0 && left == 0); }));
  }
  void send(std::uint32_t rank, const FrameHeader& header) { send(rank, encode(header)); }
  void send(std::uint32_t rank, std::string_view text) { send(rank, std::as_bytes(std::span(text))); }

  const char* first_error() { return engine_->rank_control(engine_->control().abort.load() - 1).raised.message; }

  std::unique_ptr<Engine> engine_;
  std::array<UniqueFd, 3> peers_;  ///< closed first, because these peers would not answer a farewell
};

constexpr FrameHeader error_of_10_bytes{FrameKind::error, 10, 0, 6, 0};

/// Two ranks fail at once, and their errors arrive in pieces: the first error that is complete counts.
TEST_F(BarePeers, ErrorsOfSeveralDoNotMix) {
  send(1, error_of_10_bytes);
  send(1, "aaaaa");
  send(2, error_of_10_bytes);
  send(2, "bbbbbbb");
  send(1, "AAAAA");
  EXPECT_TRUE(soon([&] { return engine_->control().abort.load() != 0; }));
  EXPECT_STREQ(first_error(), "aaaaaAAAAA");
  send(2, "BBB");
  EXPECT_STREQ(first_error(), "aaaaaAAAAA");
  EXPECT_FALSE(engine_->has_died(1) || engine_->has_died(2));
}

/// There are no more signals than tags, so a peer cannot make this rank allocate memory without limit.
TEST_F(BarePeers, SignalsWithoutEndEndTheConnection) {
  constexpr std::size_t tags = 1 << 16;
  Bytes all;
  for (std::uint64_t stream = 0; stream < tags + 1; ++stream) {
    if (stream == tags) {
      send(1, all);
      EXPECT_FALSE(engine_->has_died(1));
      all.clear();
    }
    const HeaderBytes header = encode({FrameKind::signal, 0, stream, 0, 0});
    all.insert(all.end(), header.begin(), header.end());
  }
  send(1, all);
  EXPECT_TRUE(soon([&] { return engine_->has_died(1); }));
}

/// While the system is short of memory, sending and receiving are retried, but not continuously, although the sockets
/// are ready all the time.
TEST_F(BarePeers, ASystemShortOfMemoryIsAskedNowAndThen) {
  const HeaderBytes frame = encode({FrameKind::signal, 0, 7, 0, 0});
  testing::failing_sockets.fail(ENOBUFS);
  {
    const std::lock_guard lock(engine_->mutex());
    engine_->prepare_signals(1);
    engine_->signal(7, 1);
  }
  ASSERT_EQ(::send(peers_[2].get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  testing::failing_sockets.work_again();
  EXPECT_LT(testing::failing_sockets.failed.load(), 1000);
  HeaderBytes heard{};
  EXPECT_TRUE(soon([&] { return ::recv(peers_[1].get(), heard.data(), heard.size(), 0) == header_bytes; }));
  EXPECT_EQ(heard, frame);
  EXPECT_TRUE(soon([&] {
    const std::lock_guard lock(engine_->mutex());
    return engine_->signals(7, 2) == 1;
  }));
  EXPECT_FALSE(engine_->has_died(1) || engine_->has_died(2));
}

/// A process may leave many communicators, with a single deadline for all of them.
TEST_F(BarePeers, AreToldOfTheEndWhenThereIsNoTimeLeftToo) {
  const auto begin = Deadline::Clock::now();
  engine_->announce_exit(Deadline::after_ms(0));
  EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::seconds(5)) << "peers that read nothing";
  for (std::size_t rank : {1, 2}) {
    HeaderBytes heard{};
    EXPECT_TRUE(soon([&] { return ::recv(peers_[rank].get(), heard.data(), heard.size(), 0) == header_bytes; }));
    EXPECT_EQ(decode(heard, 4096)->kind, FrameKind::exiting);
  }
}

/// Sends rank 1 more than a connection takes while nobody reads.
constexpr int many_signals = 50'000;
void send_much(Engine& engine) {
  const std::lock_guard lock(engine.mutex());
  for (int i = 0; i < many_signals; ++i) {
    engine.prepare_signals(1);
    engine.signal(7, 1);
  }
}

/// Rank 1 is stopped when rank 0 leaves, and continues later.
TEST_F(BarePeers, GetAllThatIsQueuedThoughTheyAreStoppedForAWhile) {
  send_much(*engine_);
  std::size_t heard = 0;
  std::jthread stopped([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    std::array<std::byte, 1 << 16> buffer{};
    ssize_t got = 0;
    while (soon([&] {
             got = ::recv(peers_[1].get(), buffer.data(), buffer.size(), 0);
             return got >= 0;
           }) &&
           got > 0)
      heard += static_cast<std::size_t>(got);
  });
  engine_.reset();
  stopped.join();
  EXPECT_EQ(heard, (many_signals + 1) * header_bytes);
}

/// After a failure nobody needs what is queued.
TEST_F(BarePeers, AreNotWaitedForLongAfterAFailure) {
  send_much(*engine_);
  write_error(engine_->control(), engine_->rank_control(0), 0, 6, "failed");
  const auto begin = Deadline::Clock::now();
  engine_.reset();
  EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::seconds(20));
}

/// On a link without a message nothing can have been released, and of one message not two.
TEST_F(BarePeers, MoreReleasedThanWasSentEndsTheConnection) {
  const std::lock_guard lock(engine_->mutex());
  Outgoing& link = engine_->outgoing(77, {1, 2});
  engine_->publish(link, {}, {engine_->next_slot(link), 8});
  for (const std::uint64_t released : {1, 2}) {
    const HeaderBytes header = encode({FrameKind::released, 0, 77, released, 0});
    ASSERT_EQ(::send(peers_[1].get(), header.data(), header.size(), 0), static_cast<ssize_t>(header.size()));
    engine_->poll(1);
    EXPECT_EQ(engine_->has_died(1), released == 2);
  }
}

/// As many messages as there are slots may wait for their reader; one more would overwrite the first.
TEST_F(BarePeers, MoreMessagesThanSlotsEndTheConnection) {
  for (std::uint64_t message = 0; message < 5; ++message) {
    EXPECT_FALSE(engine_->has_died(1)) << message;
    send(1, {FrameKind::slot, 0, 77, 3, message});
  }
  EXPECT_TRUE(soon([&] { return engine_->has_died(1); }));
}

/// The announced message would come by UCX, which this rank does not use.
TEST_F(BarePeers, AnnouncementsOfWhatCannotComeEndTheConnection) {
  send(1, {FrameKind::announced, 4096, 77, 3, 1});
  EXPECT_TRUE(soon([&] { return engine_->has_died(1); }));
}

TEST_F(BarePeers, LinksWithoutEndEndTheConnection) {
  for (std::uint64_t stream = 0; stream < 4096; ++stream) send(1, {FrameKind::slot, 0, stream, 3, 1});
  EXPECT_FALSE(engine_->has_died(1));
  send(1, {FrameKind::slot, 0, 4096, 3, 1});
  EXPECT_TRUE(soon([&] { return engine_->has_died(1); }));
}

/// A process's last messages may still arrive after its death, and explain it.
TEST_F(BarePeers, AProcessThatIsGoneHasItsLastWords) {
  const pid_t process = fork();
  if (process == 0) _exit(execlp("sleep", "sleep", "60", nullptr));
  connect(UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process, 0))));
  {
    const std::lock_guard lock(engine_->mutex());
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    for (int i = 0; i < 16; ++i) engine_->poll_all();
  }
  send(1, error_of_10_bytes);
  send(1, "last words");
  ASSERT_TRUE(soon([&] { return engine_->control().abort.load() != 0; }));
  EXPECT_STREQ(first_error(), "last words");
  EXPECT_TRUE(soon([&] { return engine_->has_died(1); }));
}

/// Rank 0's engine, over TCP. Nothing that it sends to ranks 1 and 2 arrives or is acknowledged. By its address, rank 2
/// is on another host.
class UnansweredPeers : public ::testing::Test {
 protected:
  UnansweredPeers() {
    std::vector<MeshPeer> mesh(3);
    connect(1, "127.0.0.1", mesh);
    connect(2, "127.0.0.2", mesh);
    engine_ = std::make_unique<Engine>(0, Geometry{.depth = 4, .slot_bytes = 4096}, std::move(mesh));
    EXPECT_TRUE(engine_->start());
  }
  /// Connects `rank`, whose end has the address `from`.
  void connect(std::size_t rank, const char* from, std::vector<MeshPeer>& mesh) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{}, there{};
    here.sin_family = there.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(inet_pton(AF_INET, from, &there.sin_addr), 1);
    socklen_t size = sizeof here;
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&here), size), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
    peers_[rank] = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(peers_[rank].get(), reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
    ASSERT_EQ(::connect(peers_[rank].get(), reinterpret_cast<sockaddr*>(&here), size), 0);
    mesh[rank].socket = Socket(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    EXPECT_EQ(mesh[rank].socket.stays_on_host(), rank == 1);
    sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog filter{1, &drop_all};
    ASSERT_EQ(::setsockopt(peers_[rank].get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
  }
  void send_to_all() { engine_->post(1, {}); }
  /// Each check counts a quarter of a second, and on a busy machine checks may be seconds apart.
  static constexpr std::int64_t busy_ms = 60'000;

  std::unique_ptr<Engine> engine_;
  std::array<UniqueFd, 3> peers_;  ///< closed first
};

/// On this host, acknowledgements may be late because there is more work than cores.
TEST_F(UnansweredPeers, AreLostIfTheyAreElsewhere) {
  const auto began = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(engine_->mutex());
    send_to_all();
  }
  EXPECT_TRUE(soon([&] { return engine_->has_died(2); }, busy_ms));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_FALSE(engine_->has_died(1));
}

/// An engine whose process has not run for a while must not conclude anything about its peers from that time.
TEST_F(UnansweredPeers, AreNotLostForWhatTheEngineMissed) {
  std::chrono::steady_clock::time_point released;
  {
    const std::lock_guard lock(engine_->mutex());
    send_to_all();
    for (int i = 0; i < 16; ++i) engine_->poll_all();  // sends what is queued
    std::this_thread::sleep_for(std::chrono::milliseconds(4500));
    released = std::chrono::steady_clock::now();
  }
  EXPECT_TRUE(soon([&] { return engine_->has_died(2); }, busy_ms));
  EXPECT_GE(std::chrono::steady_clock::now() - released, std::chrono::seconds(2));
}

}  // namespace
}  // namespace strait::tcp
