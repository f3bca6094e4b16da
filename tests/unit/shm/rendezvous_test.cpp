// Strangers at the place where the ranks of a host meet: they are dropped and counted, and do not affect any rank.
#include "transports/shm/rendezvous.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "meeting.hpp"
#include "support/another_user.hpp"
#include "transports/shm/fd_message.hpp"
#include "transports/shm/shared_file.hpp"
#include "transports/shm/strangers.hpp"

namespace strait::shm {
namespace {

using Verdict = Strangers::Verdict;

sockaddr_un abstract_address(const std::string& name, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

UniqueFd open_socket() { return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

UniqueFd listen_at(const std::string& name) {
  socklen_t size = 0;
  const sockaddr_un address = abstract_address(name, size);
  UniqueFd fd = open_socket();
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd.get(), 512), 0);
  return fd;
}

/// Connects to a socket; returns an empty descriptor if nobody listens there.
UniqueFd knock(const std::string& name) {
  socklen_t size = 0;
  const sockaddr_un address = abstract_address(name, size);
  UniqueFd fd = open_socket();
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return fd;
}

bool is_hung_up(const UniqueFd& fd) {
  char byte = 0;
  return recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

std::string unique_name(const char* what) { return std::string("strait-test-") + what + std::to_string(getpid()); }

TEST(StrangersAtASocket, MakeRoomOnceTheyHaveHadTheirTime) {
  const std::string name = unique_name("room");
  const UniqueFd listener = listen_at(name);
  Strangers strangers({500, 3});
  std::vector<UniqueFd> early;
  for (int i = 0; i < 3; ++i) early.push_back(knock(name));
  ASSERT_TRUE(strangers.accept_from(listener.get()));
  const UniqueFd late = knock(name);
  ASSERT_TRUE(strangers.accept_from(listener.get()));
  std::vector<pollfd> watched;
  strangers.watch(listener.get(), watched);
  EXPECT_EQ(watched.size(), 3u) << "the listener would make poll return at once";
  EXPECT_EQ(strangers.dropped(), 0);
  for (int tries = 0; strangers.dropped() == 0 && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(strangers.accept_from(listener.get()));
  }
  EXPECT_EQ(strangers.dropped(), 1);
  ASSERT_TRUE(strangers.accept_from(listener.get()));
  EXPECT_EQ(strangers.dropped(), 1) << "nobody else waits for room";
  EXPECT_TRUE(is_hung_up(early[0]));
  EXPECT_FALSE(is_hung_up(early[1]));
  int taken = 0;
  strangers.look_at_all([&](UniqueFd&) { return ++taken == 3 ? Verdict::taken : Verdict::silent; });
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(strangers.dropped(), 1);
}

std::string socket_name(const Secret& secret) {
  std::string name = "strait-";
  for (const std::byte b : secret.name) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
    name += digits;
  }
  return name;
}

/// The leader has descriptors for a few strangers, and more than that come before rank 1.
TEST(Meeting, StrangersDoNotTakeTheLeadersDescriptors) {
  constexpr int spare_files = 12, strangers = 40;
  const Secret secret = secret_of_this_test();
  const pid_t leader = fork();
  if (leader == 0) {
    const int lowest_free = dup(0);
    close(lowest_free);
    const rlimit limit{static_cast<rlim_t>(lowest_free + spare_files), static_cast<rlim_t>(lowest_free + spare_files)};
    setrlimit(RLIMIT_NOFILE, &limit);
    const auto met = meet(request_of(0, secret));
    if (!met) std::fprintf(stderr, "leader: %s\n", met.error().message.c_str());
    _exit(met && met->strangers_dropped >= strangers - spare_files ? 0 : 1);
  }
  std::vector<UniqueFd> silent;
  const Deadline deadline = Deadline::after_ms(10'000);
  while (silent.size() < strangers && !deadline.expired()) {
    UniqueFd fd = knock(socket_name(secret));
    if (fd) silent.push_back(std::move(fd));
    if (!fd && silent.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(silent.size(), std::size_t{strangers});
  const auto met = meet(request_of(1, secret));
  int status = -1;
  waitpid(leader, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(met) << met.error().message;
  EXPECT_TRUE(met->segment);
}

/// Rank 1 stalls after it has connected, as on a busy machine or under a debugger.
TEST(Meeting, ARankThatStallsIsNoStranger) {
  const Secret secret = secret_of_this_test();
  std::atomic<bool> listens{false}, is_connected{false};
  std::jthread leader([&] {
    RendezvousRequest request = request_of(0, secret);
    request.agree = [&](const Status& own) {
      while (listens.exchange(true) && !is_connected) std::this_thread::yield();
      return own;
    };
    const auto met = meet(request);
    EXPECT_TRUE(met) << met.error().message;
  });
  RendezvousRequest request = request_of(1, secret);
  request.agree = [&, times = 0](const Status& own) mutable {
    while (!listens) std::this_thread::yield();
    if (++times < 2) return own;
    is_connected = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return own;
  };
  const auto met = meet(request);
  EXPECT_TRUE(met) << met.error().message;
}

/// Lets two ranks meet while a stranger comes as soon as their leader listens; returns whether the ranks were not
/// delayed.
bool meet_beside_a_stranger(const Secret& secret, const std::function<void()>& come) {
  const Deadline soon = Deadline::after_ms(5000);
  std::atomic<bool> listens{false};
  std::jthread leader([&] {
    RendezvousRequest request = request_of(0, secret);
    request.agree = [&](const Status& own) {
      if (!listens) come();
      listens = true;
      return own;
    };
    const auto met = meet(request);
    ASSERT_TRUE(met) << met.error().message;
    EXPECT_EQ(met->strangers_dropped, 1);
  });
  while (!listens) std::this_thread::yield();
  const auto met = meet(request_of(1, secret));
  EXPECT_TRUE(met) << met.error().message;
  leader.join();
  return !soon.expired();
}

/// The stranger sends a descriptor whose last close takes long.
TEST(Meeting, AnotherUserDoesNotHoldTheLeaderUp) {
  const testing::AnotherUser other;
  if (!other) GTEST_SKIP() << "needs privileges";
  const Secret secret = secret_of_this_test();
  EXPECT_TRUE(
      meet_beside_a_stranger(secret, [&] { EXPECT_TRUE(other.sends_to(socket_name(secret), SOCK_SEQPACKET)); }));
}

/// The first message on the socket, in either direction, and an entry of the leader's table.
struct Line {
  std::uint32_t rank;
  std::uint8_t has_pidfd, has_heap, has_failed, reserved;
};
struct Greeting {
  std::array<std::byte, 32> password;
  Line self;
};

/// The name of the socket is not secret.
TEST(Meeting, WhoDoesNotKnowThePasswordIsAStranger) {
  const Secret secret = secret_of_this_test();
  UniqueFd stranger;
  EXPECT_TRUE(meet_beside_a_stranger(secret, [&] {
    stranger = knock(socket_name(secret));
    Greeting greeting{secret.password, {1, 0, 0, 0, 0}};
    greeting.password.back() ^= std::byte{1};
    EXPECT_EQ(::send(stranger.get(), &greeting, sizeof greeting, MSG_NOSIGNAL), ssize_t{sizeof greeting});
  }));
}

/// Another process listens in the leader's place, or the leader sends what no leader would send.
TEST(Meeting, AFalseLeaderIsFoundOut) {
  const Secret secret = secret_of_this_test();
  const auto answered_with = [&](std::byte of_password, Line second) {
    const UniqueFd listener = listen_at(socket_name(secret));
    std::jthread leader([&] {
      pollfd caller{listener.get(), POLLIN, 0};
      ASSERT_EQ(poll(&caller, 1, 10'000), 1);
      const UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Greeting greeting{secret.password, {0, 0, 0, 0, 0}};
      greeting.password.front() = of_password;
      const UniqueFd segment(memfd_create("segment", MFD_CLOEXEC));
      const int fd = segment.get();
      ASSERT_TRUE(send_message(connection.get(), std::as_bytes(std::span(&greeting, 1)), std::span(&fd, 1)));
      const std::array<Line, 2> table{Line{0, 0, 0, 0, 0}, second};
      const bool is_sent = send_message(connection.get(), std::as_bytes(std::span(table)), {}).has_value();
      EXPECT_TRUE(is_sent || of_password != secret.password.front()) << "who has found out may be gone already";
      char byte = 0;
      while (recv(connection.get(), &byte, 1, 0) > 0) continue;  // until the other end closes
    });
    return meet(request_of(1, secret));
  };
  const std::byte right = secret.password.front();
  EXPECT_TRUE(answered_with(right, {1, 0, 0, 0, 0}));
  for (const auto& met : {answered_with(right ^ std::byte{1}, {1, 0, 0, 0, 0}), answered_with(right, {2, 0, 0, 0, 0}),
                          answered_with(right, {1, 1, 0, 0, 0})}) {
    ASSERT_FALSE(met);
    EXPECT_THAT(met.error().message, ::testing::HasSubstr("no Strait of this version"));
  }
}

/// With few spare descriptors, the leader can accept both connections, but not what comes through the second.
TEST(Meeting, DescriptorsThatDoNotFitAreAnErrorAtOnce) {
  Progress* const progress = shared_progress();
  ASSERT_NE(progress, nullptr);
  const UniqueFd heap(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (int spare_files = 6; spare_files < 12; ++spare_files) {
    new (progress) Progress;
    Secret secret = secret_of_this_test();
    secret.name.back() = std::byte(spare_files);
    const pid_t leader = fork();
    if (leader == 0) {
      const int lowest_free = dup(0);
      close(lowest_free);
      const rlimit limit{static_cast<rlim_t>(lowest_free + spare_files),
                         static_cast<rlim_t>(lowest_free + spare_files)};
      (void)fail_errno("", EMFILE);  // the first time, a sanitizer needs descriptors to check the text of an error
      setrlimit(RLIMIT_NOFILE, &limit);
      RendezvousRequest request = request_of_several(0, 3, secret, *progress);
      request.heap_fd = heap.get();
      const Deadline soon = Deadline::after_ms(5000);
      const auto met = meet(request);
      if (!met) std::fprintf(stderr, "leader: %s\n", met.error().message.c_str());
      const bool says_why = met || met.error().message.find("ulimit -n") != std::string::npos;
      _exit(says_why && !soon.expired() ? 0 : 1);
    }
    {
      std::vector<std::jthread> followers;
      for (std::uint32_t rank : {1U, 2U})
        followers.emplace_back([&, rank] {
          RendezvousRequest request = request_of_several(rank, 3, secret, *progress);
          request.heap_fd = heap.get();
          (void)meet(request);
        });
    }
    int status = -1;
    waitpid(leader, &status, 0);
    EXPECT_EQ(status, 0) << spare_files << " files to spare";
  }
  munmap(progress, sizeof(Progress));
}

RendezvousRequest request_alone(std::uint8_t number) {
  Secret secret = secret_of_this_test();
  secret.name.back() = std::byte{number};
  RendezvousRequest request = request_of(0, secret);
  request.ranks.resize(1);
  return request;
}

TEST(Meeting, WhatCannotBeHandedOutIsAnError) {
  RendezvousRequest request = request_alone(0);
  request.heap_fd = 1 << 30;  // a descriptor that is never open
  EXPECT_FALSE(meet(request));
}

/// A rank that reads memory that another rank has truncated would be killed by a signal.
TEST(Meeting, NobodyCanShrinkTheSegment) {
  const auto met = meet(request_alone(0));
  ASSERT_TRUE(met) << met.error().message;
  EXPECT_NE(ftruncate(met->segment.get(), 0), 0);
}

/// The name of the file is not secret.
TEST(SharedFile, IsNoneWithoutThePassword) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "needs a /dev/shm to write to";
  const Secret secret = secret_of_this_test();
  const std::string path = "/dev/shm/" + socket_name(secret);
  const auto opens = [&](std::byte of_password) {
    Secret seen = secret;
    seen.password.front() = of_password;
    std::ofstream file(path, std::ios::binary);
    file << std::string(segment_bytes, '\0');
    file.write(reinterpret_cast<const char*>(seen.password.data()), seen.password.size());
    file.close();
    const bool is_open = share_file(request_of(1, secret)).has_value();
    unlink(path.c_str());
    return is_open;
  };
  EXPECT_TRUE(opens(secret.password.front()));
  EXPECT_FALSE(opens(secret.password.front() ^ std::byte{1}));
}

std::string umask_of_this_process() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "Umask:" && status >> word) return word;
  return "";
}

/// The umask belongs to the whole process, and its other threads may create files at any moment.
TEST(Meeting, LeavesTheUmaskAlone) {
  const std::string before = umask_of_this_process();
  ASSERT_NE(before, "");
  std::atomic<int> meeting{2};
  std::vector<std::jthread> leaders;
  for (std::uint8_t number : {1, 2})
    leaders.emplace_back([&, number] {
      for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(meet(request_alone(number)));
      --meeting;
    });
  while (meeting > 0) ASSERT_EQ(umask_of_this_process(), before);
  EXPECT_EQ(umask_of_this_process(), before);
}

/// Ranks in another network namespace connect through a socket file, which only this user may access.
TEST(Meeting, ASocketFileIsForItsUserOnly) {
  const Secret secret = secret_of_this_test();
  const std::string path = "/tmp/" + socket_name(secret);
  RendezvousRequest request = request_of(0, secret);
  request.ranks[1].net_namespace = 2;
  bool has_looked = false;
  request.agree = [&](const Status& own) {
    struct stat status {};
    if (!has_looked) {
      EXPECT_EQ(stat(path.c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777, 0600u);
    }
    has_looked = true;
    return own ? Status(fail(Code::aborted, "enough")) : own;
  };
  EXPECT_FALSE(meet(request));
  EXPECT_TRUE(has_looked);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace strait::shm
