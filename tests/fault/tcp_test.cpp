// Failures that only TCP has: cut connections, strangers at the data port, sockets that outlive their process.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "base/unique_fd.hpp"
#include "fault/rank_processes.hpp"

namespace strait::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// All ranks of these tests use TCP.
class Tcp : public ::testing::Test {
 protected:
  void SetUp() override { setenv("STRAIT_TRANSPORT", "tcp", 1); }
  void TearDown() override { unsetenv("STRAIT_TRANSPORT"); }
};

/// Shuts down all connections of this process, including those of the bootstrap.
void cut_connections() {
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.ss_family == AF_INET)
      shutdown(fd, SHUT_RDWR);
  }
}

TEST_F(Tcp, ACutConnectionIsToldOnBothSides) {
  for (const bool during_an_operation : {false, true}) {
    RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
      straitComm_t comm = join(id, rank, 2, report);
      if (comm == nullptr) return;
      std::vector<std::int32_t> buffer;
      STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, 2, 1000, 1, buffer));
      std::jthread cutter;
      if (rank == 1 && during_an_operation)
        cutter = std::jthread([] {
          std::this_thread::sleep_for(milliseconds(100));
          cut_connections();
        });
      if (rank == 1 && !during_an_operation) cut_connections();
      straitResult_t result = straitSuccess;
      for (int i = 0; result == straitSuccess; ++i) result = checked_all_reduce(comm, rank, 2, 30'000, i, buffer);
      report.fail_with(result, straitGetLastError(comm));
      expect_sticky(comm, result, report.message);
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
    ASSERT_TRUE(processes.await([&](int rank) { return processes.report(rank).failed.load() != 0; }, 10'000));
    processes.expect_all_end_well();
    for (int rank : {0, 1}) {
      EXPECT_EQ(processes.report(rank).result, straitRemoteError);
      EXPECT_THAT(processes.report(rank).message,
                  AllOf(HasSubstr("needs rank " + std::to_string(1 - rank) + " (host"), HasSubstr("connection")));
    }
  }
}

/// Forks a child by a raw system call, which the library does not notice: the child keeps copies of the sockets.
pid_t fork_behind_the_librarys_back() { return static_cast<pid_t>(syscall(SYS_fork)); }

TEST_F(Tcp, SocketsThatOutliveTheirProcessHideNoDeath) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 3, report);
    if (comm == nullptr) return;
    if (rank == 1) {
      if (fork_behind_the_librarys_back() == 0) {
        timespec time{3, 0};
        nanosleep(&time, nullptr);
        _exit(0);
      }
      pause();
    }
    const straitResult_t result = straitBarrier(comm, nullptr);
    report.fail_with(result, straitGetLastError(comm));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  std::this_thread::sleep_for(milliseconds(50));
  processes.expect_death_is_told(1, "needs rank 1 (host");
}

/// A child keeps rank 1's sockets open, so the channel tells only of rank 2, and the transport of rank 1. Of that it
/// knows that the connection has ended: the process may live on behind a cut cable.
TEST_F(Tcp, ASplitSaysNoMoreOfALostRankThanIsKnown) {
  RankProcesses processes(4, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 4, report);
    if (comm == nullptr) return;
    if (rank == 1 && fork_behind_the_librarys_back() == 0) {
      std::this_thread::sleep_for(seconds(3));
      _exit(0);
    }
    if (rank == 1 || rank == 2) pause();
    straitComm_t part = nullptr;
    const straitResult_t result = straitCommSplit(comm, 0, rank, &part, nullptr);
    report.fail_with(result, straitGetLastError(nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await_joined());
  for (const int victim : {1, 2}) {
    std::this_thread::sleep_for(milliseconds(200));
    processes.signal(victim, SIGKILL);
    processes.end(victim, 1000);
  }
  processes.expect_all_end_well();
  const std::string both = std::string(processes.report(0).message) + "\n" + processes.report(3).message;
  EXPECT_THAT(both, AllOf(HasSubstr("the split of the communicator needs rank 1 (host"),
                          HasSubstr("), whose connection has ended (its process is gone)"),
                          HasSubstr("This rank first saw: rank 2 (host"), Not(HasSubstr("has died"))));
}

/// Returns the addresses at which these processes listen.
std::vector<sockaddr_in> listeners(const std::vector<pid_t>& processes) {
  std::set<unsigned long> sockets;  // their inodes
  for (const pid_t pid : processes) {
    std::error_code gone;
    fs::directory_iterator file("/proc/" + std::to_string(pid) + "/fd", gone);
    for (; !gone && file != fs::directory_iterator(); file.increment(gone)) {
      std::error_code closed;
      unsigned long inode = 0;
      if (std::sscanf(fs::read_symlink(*file, closed).c_str(), "socket:[%lu]", &inode) == 1) sockets.insert(inode);
    }
  }
  std::vector<sockaddr_in> found;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    unsigned address = 0, port = 0, state = 0;
    unsigned long inode = 0;
    const int fields = std::sscanf(line.c_str(), " %*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*d %lu", &address,
                                   &port, &state, &inode);
    if (fields != 4 || state != 10) break;  // listening sockets come first
    if (sockets.count(inode) == 0) continue;
    sockaddr_in listener{};
    listener.sin_family = AF_INET;
    listener.sin_addr.s_addr = address;
    listener.sin_port = htons(static_cast<std::uint16_t>(port));
    found.push_back(listener);
  }
  return found;
}

TEST_F(Tcp, StrangersAtTheDataPortAreNoObstacle) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 3, report);
    ASSERT_NE(comm, nullptr) << report.message;
    std::vector<std::int32_t> buffer;
    for (int round = 0; round < 100; ++round) {
      straitComm_t part = nullptr;
      STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
      STRAIT_EXPECT_OK(checked_all_reduce(part, rank, 3, 1000, round, buffer));
      STRAIT_EXPECT_OK(straitCommDestroy(part));
    }
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  std::atomic<bool> stop{false};
  std::atomic<int> visits{0};
  std::jthread stranger([&, pids = std::vector{processes.pid(0), processes.pid(1), processes.pid(2)}] {
    std::vector<UniqueFd> silent;
    std::vector<sockaddr_in> doors;
    for (int i = 0; !stop.load(); ++i) {
      if (i % 8 == 0) doors = listeners(pids);
      for (const sockaddr_in& listener : doors) {
        UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&listener), sizeof listener) != 0) continue;
        const std::string_view http = "GET / HTTP/1.1\r\nHost: strait\r\n\r\n";
        if (++visits % 2 == 0)
          (void)!send(fd.get(), http.data(), http.size(), MSG_NOSIGNAL);
        else if (silent.size() < 64)
          silent.push_back(std::move(fd));
      }
    }
  });
  processes.expect_all_end_well(60'000);
  stop.store(true);
  stranger.join();
  EXPECT_GT(visits.load(), 20);
}

TEST_F(Tcp, NobodyListensOnceAllHaveJoined) {
  run_as_threads(3, [](straitComm_t comm, int, int) {
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    int listening = 0;
    for (int fd = 3; fd < 256; ++fd) {
      int accepts = 0;
      socklen_t size = sizeof accepts;
      if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0) listening += accepts;
    }
    EXPECT_EQ(listening, 0);
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
  });
}

TEST_F(Tcp, AStoppedRankIsNoDeadRankHoweverMuchIsSentToIt) {
  constexpr std::size_t count = 4 << 20;
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 2, report);
    if (comm == nullptr) return;
    std::vector<std::int32_t> buffer;
    for (int i = 0; i < 12; ++i) {
      STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, 2, count, i, buffer));
      report.completed.fetch_add(1);
    }
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  ASSERT_TRUE(processes.await([&](int rank) { return processes.report(rank).completed.load() > 0; }, 20'000));
  processes.signal(1, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(6000));  // longer than the time after which a host counts as vanished
  processes.signal(1, SIGCONT);
  processes.expect_all_end_well();
}

TEST_F(Tcp, TheTransportAndItsReasonCanBeRead) {
  run_as_processes(2, [](straitComm_t comm, int, int) {
    const char *name = nullptr, *why = nullptr;
    STRAIT_EXPECT_OK(straitCommGetTransport(comm, &name, &why));
    EXPECT_STREQ(name, "tcp");
    EXPECT_STREQ(why, "");  // it was asked for
    EXPECT_EQ(straitCommGetTransport(comm, nullptr, nullptr), straitInvalidArgument);
  });
}

/// STRAIT_HOSTID makes processes count as different hosts.
TEST(SeveralHosts, GoOverTcpAndSharedMemoryIsRefused) {
  for (const char* wanted : {"auto", "shm", "shm_file", "loopback"}) {
    RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
      setenv("STRAIT_HOSTID", rank == 0 ? "a" : "b", 1);
      setenv("STRAIT_TRANSPORT", wanted, 1);
      straitComm_t comm = join(id, rank, 3, report);
      if (comm == nullptr) return;
      const char *name = nullptr, *why = nullptr;
      STRAIT_EXPECT_OK(straitCommGetTransport(comm, &name, &why));
      EXPECT_STREQ(name, "tcp");
      EXPECT_STREQ(why, "");
      std::vector<std::int32_t> buffer;
      STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, 3, 100'000, 1, buffer));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
    processes.expect_all_end_well();
    for (int rank = 0; rank < 3; ++rank) {
      const Report& report = processes.report(rank);
      EXPECT_EQ(report.joined.load() != 0, std::string_view(wanted) == "auto") << wanted;
      if (report.joined.load() != 0) continue;
      EXPECT_EQ(report.result, straitUnsupported);
      EXPECT_THAT(report.message, HasSubstr(std::string("STRAIT_TRANSPORT=") + wanted));
    }
  }
}

}  // namespace
}  // namespace strait::testing
