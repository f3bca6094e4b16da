// What can go wrong while ranks join: deaths, strangers, differing settings, a wrong key, ranks that never come.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>

#include "base/unique_fd.hpp"
#include "bootstrap/unique_id.hpp"
#include "fault/leftovers.hpp"
#include "fault/rank_processes.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

straitConfig_t impatient(std::int64_t init_timeout_ms) {
  straitConfig_t config = test_config();
  config.init_timeout_ms = init_timeout_ms;
  return config;
}

/// A rank dies at a random moment between its first packet and its last: the others must either join or be told.
void kill_while_joining(std::uint64_t seed) {
  const Leftovers leftovers;
  const int victim = static_cast<int>(seed % 3);
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 3, report, impatient(3000));
    if (comm == nullptr) return;
    if (rank == victim) pause();
    report.fail_with(straitBarrier(comm, nullptr), straitGetLastError(comm));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  std::this_thread::sleep_for(std::chrono::microseconds(mix(seed) % 25'000));
  const Stopwatch since_death;
  processes.signal(victim, SIGKILL);
  processes.end(victim, 1000);
  processes.expect_all_end_well(10'000);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    const Report& report = processes.report(rank);
    EXPECT_TRUE(report.result == straitRemoteError || report.result == straitTimeout)
        << report.result << " " << report.message;
    EXPECT_LT(since_death.until(report.failed_at), seconds(4));
  }
  EXPECT_EQ(leftovers.that_stay(), "");
}
TEST(Joining, ARankDies) {
  for (std::uint64_t seed = 0; seed < 9; ++seed) kill_while_joining(seed);
}

TEST(Joining, RanksThatNeverComeAreNamed) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank : {0, 2})
    threads.emplace_back([&, rank] {
      const straitConfig_t config = impatient(400);
      straitComm_t comm = nullptr;
      const Stopwatch watch;
      EXPECT_EQ(straitCommInitRank(&comm, 4, &id, rank, &config), straitTimeout);
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("1, 3"));
      EXPECT_EQ(comm, nullptr);
      EXPECT_LT(watch.elapsed(), milliseconds(2000));
    });
}

TEST(Joining, SettingsThatDifferAreNamedOnAllRanks) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    setenv("STRAIT_SLICE_BYTES", rank == 2 ? "64K" : "32K", 1);
    EXPECT_EQ(join(id, rank, 3, report, impatient(5000)), nullptr);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(processes.report(rank).result, straitMismatch);
    EXPECT_THAT(processes.report(rank).message,
                AllOf(HasSubstr("STRAIT_SLICE_BYTES"), HasSubstr("32768"), HasSubstr("65536")));
  }
}

TEST(Joining, ASettingThatOneRankCannotTakeIsNamedOnAllRanks) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    if (rank == 1) setenv("STRAIT_TIMEOUT_MS", "soon", 1);
    EXPECT_EQ(join(id, rank, 3, report, impatient(5000)), nullptr);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(processes.report(rank).result, rank == 1 ? straitInvalidArgument : straitRemoteError);
    EXPECT_THAT(processes.report(rank).message, HasSubstr("STRAIT_TIMEOUT_MS=\"soon\""));
  }
}

/// Values whose meaning the bootstrap does not know. They must be equal on all ranks, and yet are told as wrong, not as
/// different.
TEST(Joining, AWrongValueOfOneRankIsNoDifference) {
  const std::array<std::pair<const char*, const char*>, 4> wrong{{{"STRAIT_ALGORITHM", "rong"},
                                                                  {"STRAIT_SLICE_BYTES", "40"},
                                                                  {"STRAIT_P2P", "0-"},
                                                                  {"STRAIT_EXCHANGE_GBPS", "fast"}}};
  for (const auto& [name, value] : wrong) {
    RankProcesses processes(2, [&, name = name, value = value](int rank, const straitUniqueId& id, Report& report) {
      if (rank == 1) setenv(name, value, 1);
      EXPECT_EQ(join(id, rank, 2, report, impatient(5000)), nullptr);
    });
    processes.expect_all_end_well();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_NE(processes.report(rank).result, straitMismatch) << name;
      EXPECT_THAT(processes.report(rank).message,
                  AllOf(HasSubstr("rank 1 cannot join"), HasSubstr(name), HasSubstr(value)));
    }
  }
}

straitUniqueId with_another_key(const straitUniqueId& id) {
  auto forged = unpack_unique_id(std::as_bytes(std::span(id.internal)));
  EXPECT_TRUE(forged);
  forged->key[0] ^= std::byte{1};
  straitUniqueId wrong;
  const auto packed = forged->pack();
  std::memcpy(wrong.internal, packed.data(), packed.size());
  return wrong;
}

TEST(Joining, AWrongKeyDoesNotOpenTheDoor) {
  constexpr int stranger = 2;  // in the place of rank 1
  auto* const refused =
      new (mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          std::atomic<bool>(false);
  RankProcesses processes(3, [&](int process, const straitUniqueId& id, Report& report) {
    const bool is_stranger = process == stranger;
    // Rank 1 joins only after the stranger was refused, because the root stops listening when all ranks have joined.
    const auto deadline = Clock::now() + milliseconds(5000);
    while (process == 1 && !refused->load() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    straitComm_t comm =
        join(is_stranger ? with_another_key(id) : id, is_stranger ? 1 : process, 2, report, impatient(10'000));
    if (is_stranger) refused->store(true);
    EXPECT_EQ(comm == nullptr, is_stranger);
    if (comm == nullptr) return;
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  processes.expect_all_end_well();
  EXPECT_THAT(processes.report(stranger).message, HasSubstr("key"));
  munmap(refused, sizeof *refused);
}

UniqueFd knock(const UniqueId& id) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(id.root.port);
  std::memcpy(&address.sin_addr, id.root.bytes.data(), 4);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

/// Connects strangers until `stop`: silent ones, ones that leave, ones that send HTTP, and ones that send random bytes.
void disturb(const UniqueId& id, const std::atomic<bool>& stop, std::atomic<int>& visits) {
  std::vector<UniqueFd> silent;
  for (std::uint64_t i = 0; !stop.load(); ++i) {
    UniqueFd fd = knock(id);
    if (!fd) break;  // nobody listens: all ranks have joined
    ++visits;
    const std::string_view http = "GET / HTTP/1.1\r\nHost: strait\r\n\r\n";
    Bytes noise(1 + mix(i) % 4096);
    fill_random(noise, DataType::uint8, i);
    if (i % 4 == 1) (void)!send(fd.get(), http.data(), http.size(), MSG_NOSIGNAL);
    if (i % 4 == 2) (void)!send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    if (i % 4 == 3 && silent.size() < 64) silent.push_back(std::move(fd));
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

TEST(Joining, StrangersAreNoObstacle) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    std::this_thread::sleep_for(milliseconds(50 * (rank + 1)));
    straitComm_t comm = join(id, rank, 3, report);
    ASSERT_NE(comm, nullptr) << report.message;
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, 3, 1000, 1, buffer));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  const auto id = unpack_unique_id(std::as_bytes(std::span(processes.id().internal)));
  ASSERT_TRUE(id);
  ASSERT_EQ(id->root.family, 4);
  std::atomic<bool> stop{false};
  std::atomic<int> visits{0};
  std::vector<std::jthread> strangers;
  for (int i = 0; i < 2; ++i) strangers.emplace_back([&] { disturb(*id, stop, visits); });
  processes.expect_all_end_well();
  stop.store(true);
  EXPECT_GT(visits.load(), 0);
}

/// Has strangers come to the sockets at which ranks meet while these make communicators; returns how many got there.
int visit_unix_sockets() {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitComm_t comm = join(id, rank, 3, report);
    ASSERT_NE(comm, nullptr) << report.message;
    for (int round = 0; round < 20; ++round) {
      straitComm_t part = nullptr;
      STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
      STRAIT_EXPECT_OK(straitBarrier(part, nullptr));
      STRAIT_EXPECT_OK(straitCommDestroy(part));
    }
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  std::atomic<bool> stop{false};
  std::atomic<int> visits{0};
  std::jthread stranger([&] {
    while (!stop.load())
      for (const std::string& name : visible_remains()) {
        if (name.size() != 8 + 32 || name[0] != '@') continue;
        UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
        if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) continue;
        ++visits;
        (void)!send(fd.get(), "hello", 5, MSG_NOSIGNAL);
      }
  });
  processes.expect_all_end_well();
  stop.store(true);
  return visits;
}

/// While ranks join through shared memory, any process on the host can list the socket at which they meet.
TEST(Joining, StrangersAtTheUnixSocketAreNoObstacle) {
  int visits = 0;
  for (int i = 0; i < 10 && visits == 0; ++i) visits = visit_unix_sockets();  // the sockets are there for moments only
  EXPECT_GT(visits, 0);
}

}  // namespace
}  // namespace strait::testing
