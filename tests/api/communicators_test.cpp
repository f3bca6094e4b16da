// Communicators: queries, splits, two at once, how they end, and joining by the environment.
#include <dirent.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <set>
#include <span>
#include <string>

#include "api/values.hpp"
#include "bootstrap/bootstrap.hpp"
#include "support/free_port.hpp"
#include "support/ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

TEST(Library, Version) {
  int version = 0;
  STRAIT_EXPECT_OK(straitGetVersion(&version));
  EXPECT_EQ(version, STRAIT_VERSION);
}

TEST(Library, EveryResultHasAText) {
  std::set<std::string> texts;
  for (int result = straitSuccess; result <= straitInProgress; ++result)
    texts.insert(straitGetErrorString(static_cast<straitResult_t>(result)));
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(straitInProgress) + 1);
  EXPECT_STREQ(straitGetErrorString(static_cast<straitResult_t>(13)), "unknown result");
}

TEST(Communicators, KnowTheirRank) {
  run_as_threads(3, [](straitComm_t comm, int rank, int) {
    int got_rank = -1, got_ranks = -1, device = 7, done = 7;
    straitResult_t error = straitInternalError;
    STRAIT_EXPECT_OK(straitCommUserRank(comm, &got_rank));
    STRAIT_EXPECT_OK(straitCommCount(comm, &got_ranks));
    STRAIT_EXPECT_OK(straitCommDevice(comm, &device));
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
    STRAIT_EXPECT_OK(straitCommSynchronize(comm));
    STRAIT_EXPECT_OK(straitCommQuery(comm, &done));
    EXPECT_EQ(straitCommQuery(comm, nullptr), straitInvalidArgument);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(got_rank, rank);
    EXPECT_EQ(got_ranks, 3);
    EXPECT_EQ(device, -1);
    EXPECT_EQ(error, straitSuccess);
  });
}

TEST(Communicators, BarrierHoldsEverybodyBack) {
  std::atomic<int> arrived{0};
  run_as_threads(5, [&](straitComm_t comm, int rank, int ranks) {
    for (int round = 1; round <= 3; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == round ? 20 : 0));
      ++arrived;
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
      EXPECT_GE(arrived.load(), round * ranks);
    }
  });
}

TEST(Communicators, NothingToMoveAnywhere) {
  run_as_threads(3, [](straitComm_t comm, int, int) {
    const std::array<std::size_t, 3> none{};
    STRAIT_EXPECT_OK(straitAllReduce(nullptr, nullptr, 0, straitFloat32, straitSum, comm, nullptr));
    STRAIT_EXPECT_OK(straitAllGather(nullptr, nullptr, 0, straitFloat32, comm, nullptr));
    STRAIT_EXPECT_OK(straitReduceScatter(nullptr, nullptr, 0, straitFloat32, straitMax, comm, nullptr));
    STRAIT_EXPECT_OK(straitAllToAll(nullptr, nullptr, 0, straitFloat32, comm, nullptr));
    STRAIT_EXPECT_OK(straitAllToAllv(nullptr, none.data(), none.data(), nullptr, none.data(), none.data(), straitInt8,
                                     comm, nullptr));
    STRAIT_EXPECT_OK(straitBroadcast(nullptr, nullptr, 0, straitFloat32, 2, comm, nullptr));
    STRAIT_EXPECT_OK(straitReduce(nullptr, nullptr, 0, straitFloat32, straitMin, 2, comm, nullptr));
    STRAIT_EXPECT_OK(straitGather(nullptr, nullptr, 0, straitFloat32, 2, comm, nullptr));
    STRAIT_EXPECT_OK(straitScatter(nullptr, nullptr, 0, straitFloat32, 2, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitGroupEnd());
    check_sum(comm, 10, 1);
  });
}

TEST(Communicators, PremultipliedSums) {
  run_as_threads(3, [](straitComm_t comm, int rank, int) {
    // Two reductions at the same time; the scalars of the first differ from rank to rank.
    const float first = 0.5f * static_cast<float>(rank + 1), second = -2.0f, mine = static_cast<float>(rank + 1);
    float sum = 0;
    straitRedOp_t weighted, minus_two;
    STRAIT_EXPECT_OK(straitRedOpCreatePreMulSum(&weighted, &first, straitFloat32, straitScalarHostImmediate, comm));
    STRAIT_EXPECT_OK(straitRedOpCreatePreMulSum(&minus_two, &second, straitFloat32, straitScalarHostImmediate, comm));
    STRAIT_EXPECT_OK(straitAllReduce(&mine, &sum, 1, straitFloat32, weighted, comm, nullptr));
    EXPECT_EQ(sum, 7.0f);
    STRAIT_EXPECT_OK(straitAllReduce(&mine, &sum, 1, straitFloat32, minus_two, comm, nullptr));
    EXPECT_EQ(sum, -12.0f);
    const double other_type = 1;
    double other_sum = 0;
    EXPECT_EQ(straitAllReduce(&other_type, &other_sum, 1, straitFloat64, weighted, comm, nullptr),
              straitInvalidArgument);
    // Scalars given by address, which every call reads when it runs, while rank 1 uses an immediate scalar.
    float later = 0;
    straitRedOp_t changing;
    const auto residence = rank == 1 ? straitScalarHostImmediate : straitScalarDevice;
    STRAIT_EXPECT_OK(
        straitRedOpCreatePreMulSum(&changing, rank == 1 ? &first : &later, straitFloat32, residence, comm));
    for (const float factor : {2.0f, 8.0f}) {
      later = factor;
      STRAIT_EXPECT_OK(straitAllReduce(&mine, &sum, 1, straitFloat32, changing, comm, nullptr));
      EXPECT_EQ(sum, factor * 1 + 1.0f * 2 + factor * 3);
    }
    STRAIT_EXPECT_OK(straitRedOpDestroy(weighted, comm));
    EXPECT_EQ(straitAllReduce(&mine, &sum, 1, straitFloat32, weighted, comm, nullptr), straitInvalidArgument);
    STRAIT_EXPECT_OK(straitAllReduce(&mine, &sum, 1, straitFloat32, minus_two, comm, nullptr));
    EXPECT_EQ(straitRedOpDestroy(straitSum, comm), straitInvalidArgument);
  });
}

/// Splits by color with the ranks ordered by key; then splits a part again.
void check_split(straitComm_t comm, int rank, int ranks) {
  straitComm_t part = nullptr;
  const int color = rank % 2;
  STRAIT_EXPECT_OK(straitCommSplit(comm, color, -rank, &part, nullptr));  // keys that reverse the order
  int part_rank = -1, part_ranks = -1;
  STRAIT_EXPECT_OK(straitCommUserRank(part, &part_rank));
  STRAIT_EXPECT_OK(straitCommCount(part, &part_ranks));
  const int members = (ranks + 1 - color) / 2;
  EXPECT_EQ(part_ranks, members);
  EXPECT_EQ(part_rank, members - 1 - rank / 2);
  check_sum(part, 3000, static_cast<std::uint64_t>(color));
  check_sum(comm, 3000, 50);

  straitComm_t alone = nullptr;
  STRAIT_EXPECT_OK(straitCommSplit(part, part_rank, 0, &alone, nullptr));
  check_sum(alone, 10, 3);
  straitComm_t none = comm;
  STRAIT_EXPECT_OK(straitCommSplit(comm, rank == 0 ? -1 : 5, 0, &none, nullptr));
  EXPECT_EQ(none == nullptr, rank == 0);
  if (none != nullptr) check_sum(none, 100, 9);

  STRAIT_EXPECT_OK(straitCommDestroy(none));
  STRAIT_EXPECT_OK(straitCommDestroy(part));
  check_sum(alone, 10, 4);  // a child outlives its parent
  STRAIT_EXPECT_OK(straitCommDestroy(alone));
  check_sum(comm, 10, 5);
}
TEST(Split, Threads) { run_as_threads(5, check_split); }
TEST(Split, Processes) { run_as_processes(3, check_split); }

TEST(Split, KeepsTheParentsDeadline) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitConfig_t config = test_config();
  config.timeout_ms = 100;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      straitComm_t comm = nullptr, part = nullptr;
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, rank, &config));
      STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
      if (rank == 0) {
        EXPECT_EQ(straitBarrier(part, nullptr), straitTimeout);
      }
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      STRAIT_EXPECT_OK(straitCommDestroy(part));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
}

/// Programs that want no deadline may give the largest value instead of 0.
TEST(Deadline, TheLongestThereIsIsNotOverAtOnce) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitConfig_t config = test_config();
  config.timeout_ms = config.init_timeout_ms = std::numeric_limits<std::int64_t>::max();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, rank, &config));
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
}

/// A program may load for minutes between making an id and joining: how long ranks wait is set by their configurations.
TEST(Deadline, OfInitBeginsWhenARankJoins) {
  setenv("STRAIT_INIT_TIMEOUT_MS", "50", 1);
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  const straitConfig_t config = test_config();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, rank, &config));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
  threads.clear();
  unsetenv("STRAIT_INIT_TIMEOUT_MS");
}

TEST(Split, EndsWhenTheCommunicatorIsAborted) {
  run_as_threads(3, [](straitComm_t comm, int rank, int) {
    const Stopwatch watch;
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      STRAIT_EXPECT_OK(straitCommAbort(comm));
    }
    straitComm_t part = nullptr;
    EXPECT_EQ(straitCommSplit(comm, 0, 0, &part, nullptr), straitAborted);
    EXPECT_NE(std::string(straitGetLastError(nullptr)).find("aborted by rank 1 (host"), std::string::npos);
    EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
  });
}

/// Aborts a communicator while another thread waits for the ranks to make it with; that thread must return. `record`
/// records the init in a group, so that the handle exists before the wait.
void abort_while_it_is_made(const std::function<void(straitComm_t*)>& record,
                            const std::function<void()>& until_it_waits) {
  std::promise<straitComm_t> recorded;
  std::jthread maker([&] {
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitGroupStart());
    record(&comm);
    recorded.set_value(comm);
    EXPECT_EQ(straitGroupEnd(), straitAborted) << straitGetLastError(nullptr);
    EXPECT_NE(std::string(straitGetLastError(nullptr)).find("aborted"), std::string::npos);
  });
  straitComm_t comm = recorded.get_future().get();
  until_it_waits();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Stopwatch watch;
  STRAIT_EXPECT_OK(straitCommAbort(comm));
  maker.join();
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

void record_init(straitComm_t* comm, const straitUniqueId& id) {
  const straitConfig_t config = test_config();
  STRAIT_EXPECT_OK(straitCommInitRank(comm, 2, &id, 0, &config));
}

TEST(AbortOfAnInit, BeforeAllRanksHaveCome) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  abort_while_it_is_made([&](straitComm_t* comm) { record_init(comm, id); }, [] {});
}

/// Rank 1 joins the bootstrap, but does no more.
TEST(AbortOfAnInit, BetweenJoiningAndTheEnd) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  const Wait wait{Deadline::after_ms(20'000), nullptr};
  std::unique_ptr<Channel> channel;
  abort_while_it_is_made([&](straitComm_t* comm) { record_init(comm, id); },
                         [&] {
                           JoinOptions options;
                           options.rank = 1;
                           options.ranks = 2;
                           options.wait = wait;
                           auto joined = join(*unpack_unique_id(std::as_bytes(std::span(id.internal))), options);
                           ASSERT_TRUE(joined) << joined.error().message;
                           channel = std::move(*joined);
                         });
  ASSERT_NE(channel, nullptr);
  const Stopwatch watch;
  const Status told = channel->barrier(wait);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, Code::aborted);
  EXPECT_NE(told.error().message.find("aborted while it was made, on rank 0 (host"), std::string::npos)
      << told.error().message;
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

TEST(AbortOfASplit, EndsItOnAllRanksAndLeavesTheCommunicator) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    if (rank == 0)
      abort_while_it_is_made([&](straitComm_t* part) { STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, part, nullptr)); },
                             [] {});
    meet();
    straitComm_t part = nullptr;
    const Stopwatch watch;
    EXPECT_EQ(straitCommSplit(comm, 0, 0, &part, nullptr), straitAborted);
    EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
    check_sum(comm, 100, 1);
  });
}

TEST(Communicators, TwoAtOnceFromTwoThreadsOfEachRank) {
  run_as_threads(2, [](straitComm_t comm, int, int) {
    straitComm_t other = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &other, nullptr));
    const auto work = [](straitComm_t used, std::uint64_t seed) {
      for (std::uint64_t i = 0; i < 50; ++i) check_sum(used, i % 5 == 0 ? 40'000 : 64, seed + i);
    };
    std::jthread second([&] { work(other, 1000); });
    work(comm, 0);
    second.join();
    STRAIT_EXPECT_OK(straitCommDestroy(other));
  });
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* directory = opendir(folder);
  while (directory != nullptr && readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

struct Holdings {
  std::size_t fds = entries("/proc/self/fd");
  std::size_t threads = entries("/proc/self/task");
  std::size_t maps = mappings();
};

/// What this process holds must not grow with the number of communicators that it has made. Threads from the start-up
/// of the last one may still be ending, so the minimum of several looks counts.
void check_nothing_leaks(const std::function<void(int)>& generation) {
  constexpr int settled = 10, first_look = 30, last_look = 45;
  Holdings before, least;
  for (int i = 0; i < last_look; ++i) {
    generation(i);
    const Holdings now;
    if (i == settled) before = now;  // caches are filled by then
    if (i == first_look) least = now;
    if (i > first_look)
      least = {std::min(least.fds, now.fds), std::min(least.threads, now.threads), std::min(least.maps, now.maps)};
  }
  EXPECT_LE(least.fds, before.fds);
  EXPECT_LE(least.threads, before.threads);
  EXPECT_LE(least.maps, before.maps + 10);  // an allocator may take some; a leak would be one per communicator
}

TEST(Leaks, CommunicatorsOfThreads) {
  check_nothing_leaks([](int i) {
    run_as_threads(2, [i](straitComm_t comm, int, int) { check_sum(comm, 1000, static_cast<std::uint64_t>(i)); });
  });
}

TEST(Leaks, CommunicatorsOfProcesses) {
  run_as_processes(2, [](straitComm_t comm, int, int) {
    check_nothing_leaks([&](int i) {
      straitComm_t part = nullptr;
      STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
      check_sum(part, 1000, static_cast<std::uint64_t>(i));
      STRAIT_EXPECT_OK(straitCommDestroy(part));
    });
  });
}

TEST(InitEnv, StraitsOwnVariables) {
  const std::string key(64, 'a');
  const FreePort port;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(fork_rank([&] {
      setenv("STRAIT_RANK", std::to_string(rank).c_str(), 1);
      setenv("STRAIT_RANKS", "3", 1);
      setenv("STRAIT_ROOT", ("127.0.0.1:" + port.text()).c_str(), 1);
      setenv("STRAIT_KEY", key.c_str(), 1);
      const straitConfig_t config = test_config();
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitCommInitEnv(&comm, &config));
      int got = -1;
      STRAIT_EXPECT_OK(straitCommUserRank(comm, &got));
      EXPECT_EQ(got, rank);
      check_sum(comm, 1000, 1);
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    }));
  for (pid_t child : children) EXPECT_EQ(wait_for(child, 20000), 0);
}

TEST(InitEnv, WithoutALauncherThereIsOneRank) {
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitCommInitEnv(&comm, nullptr));
  int ranks = 0;
  STRAIT_EXPECT_OK(straitCommCount(comm, &ranks));
  EXPECT_EQ(ranks, 1);
  check_sum(comm, 100, 1);
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

}  // namespace
}  // namespace strait::testing
