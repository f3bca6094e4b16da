// Any allocation in one rank's call may fail for lack of memory: the call must say so, and its peers must not wait for
// ever.
#include <gmock/gmock.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

thread_local int allocations = 0;  ///< number of allocations by this thread
std::atomic<int> failing_of_next_thread = -1;
thread_local int failing_allocation = failing_of_next_thread.exchange(-1);  ///< which of them fails; -1: none

/// With `lasts`, all allocations from the failing one on fail (`is_short`), until something large is freed.
thread_local bool lasts = false, is_short = false;

void* allocate(std::size_t bytes) {
  const bool fails = allocations++ == failing_allocation;
  is_short |= fails && lasts;
  void* const memory = fails || is_short ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) {
  if (memory != nullptr && malloc_usable_size(memory) >= 16 << 10) is_short = false;
  std::free(memory);
}

}  // namespace

/// Initializes this thread's counters, so that failing_of_next_thread applies to another thread.
void allocate_once() { std::free(allocate(1)); }

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

namespace strait::testing {
namespace {

constexpr int ranks = 3;
constexpr std::size_t count = 100'000;

/// Buffers in memory that can be registered with every transport.
class Buffers {
 public:
  Buffers() {
    STRAIT_EXPECT_OK(straitMemAlloc(&memory_, 2 * ranks * count * sizeof(float)));
    const std::span all(static_cast<float*>(memory_), 2 * ranks * count);
    std::fill(all.begin(), all.end(), 1.f);
    send = all.first(ranks * count);
    receive = all.last(ranks * count);
  }
  ~Buffers() { STRAIT_EXPECT_OK(straitMemFree(memory_)); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::span<float> send, receive;

 private:
  void* memory_ = nullptr;
};
using Work = straitResult_t (*)(straitComm_t comm, int rank, Buffers& buffers);

straitResult_t all_reduce(straitComm_t comm, int, Buffers& buffers) {
  return straitAllReduce(buffers.send.data(), buffers.receive.data(), count, straitFloat32, straitSum, comm, nullptr);
}
straitResult_t quantized_all_reduce(straitComm_t comm, int, Buffers& buffers) {
  straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
  options.wire = straitWireInt8;
  return straitAllReduceWithOptions(buffers.send.data(), buffers.receive.data(), count, straitFloat32, straitSum, comm,
                                    nullptr, &options);
}
straitResult_t all_to_all_v(straitComm_t comm, int, Buffers& buffers) {
  const std::array<std::size_t, ranks> counts{count, count, count}, offsets{0, count, 2 * count};
  return straitAllToAllv(buffers.send.data(), counts.data(), offsets.data(), buffers.receive.data(), counts.data(),
                         offsets.data(), straitFloat32, comm, nullptr);
}
straitResult_t ring(straitComm_t comm, int rank, Buffers& buffers) {
  straitGroupStart();
  straitSend(buffers.send.data(), count, straitFloat32, (rank + 1) % ranks, comm, nullptr);
  straitRecv(buffers.receive.data(), count, straitFloat32, (rank + ranks - 1) % ranks, comm, nullptr);
  return straitGroupEnd();
}
straitResult_t mixed_group(straitComm_t comm, int rank, Buffers& buffers) {
  straitGroupStart();
  straitSend(buffers.send.data(), count, straitFloat32, (rank + 1) % ranks, comm, nullptr);
  straitRecv(buffers.receive.data(), count, straitFloat32, (rank + ranks - 1) % ranks, comm, nullptr);
  straitAllReduce(buffers.send.data(), buffers.receive.data() + count, count, straitFloat32, straitSum, comm, nullptr);
  straitBroadcast(buffers.send.data(), buffers.receive.data() + 2 * count, count, straitFloat32, 1, comm, nullptr);
  return straitGroupEnd();
}

straitResult_t register_memory(straitComm_t comm, int, Buffers& buffers) {
  void* handle = nullptr;
  const straitResult_t result = straitCommRegister(comm, buffers.send.data(), 1000, &handle);
  return result == straitSuccess ? straitCommDeregister(comm, handle) : result;
}
straitResult_t register_in_a_group(straitComm_t comm, int rank, Buffers& buffers) {
  void *handle = nullptr, *other = nullptr;
  straitGroupStart();
  straitCommRegister(comm, buffers.send.data(), 1000, &handle);
  straitCommRegister(comm, buffers.receive.data(), 1000, &other);
  all_reduce(comm, rank, buffers);
  return straitGroupEnd();
}
straitResult_t split(straitComm_t comm, int rank, Buffers&) {
  straitComm_t part = nullptr;
  const straitResult_t result = straitCommSplit(comm, 0, rank, &part, nullptr);
  const int failing = std::exchange(failing_allocation, -1);
  is_short = false;
  if (result == straitSuccess) straitCommDestroy(part);
  failing_allocation = failing;
  return result;
}

/// Runs `work` on all ranks. On rank 1 allocation number `failing` fails. Returns how many allocations rank 1 made.
int run_with_failure(Work work, int failing, bool for_long = false) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::array<straitResult_t, ranks> results{};
  int asked_for = 0;
  std::barrier told(ranks);  // destroying a communicator would end a peer's wait as well
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      straitConfig_t config = test_config();
      config.timeout_ms = config.init_timeout_ms = 5000;
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, static_cast<int>(rank), &config));
      if (comm == nullptr) return told.arrive_and_drop();
      Buffers buffers;
      if (rank == 1) {
        allocations = 0;
        failing_allocation = failing;
        lasts = for_long;
      }
      results[rank] = work(comm, static_cast<int>(rank), buffers);
      failing_allocation = -1;
      is_short = false;
      if (rank == 1) asked_for = allocations;
      told.arrive_and_wait();
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
  threads.clear();
  // Some code can do without the memory, for example for a sort's buffer.
  EXPECT_THAT(results[1], ::testing::AnyOf(straitOutOfMemory, straitSuccess)) << "allocation " << failing;
  if (results[1] == straitSuccess) {
    EXPECT_THAT(results, ::testing::Each(straitSuccess)) << "allocation " << failing;
  }
  EXPECT_THAT(results, ::testing::Not(::testing::Contains(straitTimeout))) << "allocation " << failing;
  return asked_for;
}

/// Runs `work` with each of the first and the last allocations failing, and some of those between, which choose a plan.
void run_with_failures(Work work) {
  constexpr int ends = 12, samples = 20;
  const int all = run_with_failure(work, -1);
  ASSERT_GT(all, 0);
  for (int failing = 0; failing < all && !::testing::Test::HasFailure(); ++failing) {
    const bool is_at_end = failing < ends || failing >= all - ends;
    if (!is_at_end && failing % (all / samples + 1) != 0) continue;
    for (const bool for_long : {false, true}) run_with_failure(work, failing, for_long);
  }
}

/// One thread drives both ranks, so the set-up of the second one runs on another thread, which must not throw.
TEST(OutOfMemory, OfAThreadThatSetsUp) {
  for (int failing = 0; failing < 20; ++failing) {
    const pid_t child = fork_rank([&] {
      straitUniqueId id;
      std::array<straitComm_t, 2> comms{}, parts{};
      const straitConfig_t config = test_config();
      STRAIT_EXPECT_OK(straitGetUniqueId(&id));
      STRAIT_EXPECT_OK(straitGroupStart());
      for (int rank : {0, 1})
        STRAIT_EXPECT_OK(straitCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, &id, rank, &config));
      STRAIT_EXPECT_OK(straitGroupEnd());
      STRAIT_EXPECT_OK(straitGroupStart());
      for (std::size_t rank : {0, 1}) STRAIT_EXPECT_OK(straitCommSplit(comms[rank], 0, 0, &parts[rank], &config));
      failing_of_next_thread = failing;
      EXPECT_NE(straitGroupEnd(), straitSuccess);
      for (std::size_t rank : {0, 1}) STRAIT_EXPECT_OK(straitCommDestroy(parts[rank]));
      for (std::size_t rank : {0, 1}) STRAIT_EXPECT_OK(straitCommDestroy(comms[rank]));
    });
    ASSERT_EQ(wait_for(child, 5'000), 0) << "allocation " << failing;
  }
}

/// Runs `body` in a child process. `failing` is the number of the allocation that fails there.
void run_apart(int failing, const std::function<void()>& body) {
  const pid_t child = fork_rank([&] { body(); });
  EXPECT_EQ(wait_for(child, 10'000), 0) << "allocation " << failing;
}

/// Returns the results of ranks 0 and 1, which are threads, when they join after `shorten` has been called.
std::array<straitResult_t, 2> join_two(const straitUniqueId& id, const std::function<void()>& shorten) {
  std::array<straitResult_t, 2> results{};
  std::barrier started(2, [&]() noexcept { shorten(); });
  std::vector<std::jthread> threads;
  for (std::size_t rank : {0, 1})
    threads.emplace_back([&, rank] {
      straitConfig_t config = test_config();
      config.init_timeout_ms = 5000;
      straitComm_t comm = nullptr;
      allocate_once();
      started.arrive_and_wait();
      results[rank] = straitCommInitRank(&comm, 2, &id, static_cast<int>(rank), &config);
      if (comm != nullptr) straitCommDestroy(comm);
    });
  threads.clear();
  return results;
}

/// The thread that introduces the ranks to one another.
TEST(OutOfMemory, OfARoot) {
  for (int failing = 0; failing < 40 && !HasFailure(); ++failing)
    run_apart(failing, [&] {
      straitUniqueId id;
      failing_of_next_thread = failing;
      STRAIT_EXPECT_OK(straitGetUniqueId(&id));
      while (failing_of_next_thread != -1) std::this_thread::yield();
      const auto results = join_two(id, [] {});
      EXPECT_THAT(results, ::testing::Each(::testing::AnyOf(straitOutOfMemory, straitRemoteError, straitSuccess)));
    });
}

/// The thread that accepts TCP connections of other ranks.
TEST(OutOfMemory, OfAThreadThatIsConnectedTo) {
  for (int failing = 0; failing < 20 && !HasFailure(); ++failing)
    run_apart(failing, [&] {
      straitUniqueId id;
      setenv("STRAIT_TRANSPORT", "tcp", 1);
      STRAIT_EXPECT_OK(straitGetUniqueId(&id));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the id's thread has begun
      const auto results = join_two(id, [&] { failing_of_next_thread = failing; });
      EXPECT_THAT(results, ::testing::Each(::testing::AnyOf(straitOutOfMemory, straitRemoteError, straitSuccess)));
      if (failing == 0) {
        EXPECT_THAT(results, ::testing::Contains(straitOutOfMemory));
      }
    });
}

/// The thread that looks up a host's address.
TEST(OutOfMemory, OfALookUp) {
  run_apart(0, [] {
    setenv("STRAIT_RANK", "1", 1);
    setenv("STRAIT_RANKS", "2", 1);
    setenv("STRAIT_ROOT", "no-such-host.invalid:1", 1);
    setenv("STRAIT_KEY", std::string(64, 'a').c_str(), 1);
    straitConfig_t config = test_config();
    config.init_timeout_ms = 5000;
    straitComm_t comm = nullptr;
    failing_of_next_thread = 0;
    EXPECT_THAT(straitCommInitEnv(&comm, &config), ::testing::AnyOf(straitOutOfMemory, straitTimeout));
  });
}

/// The thread that writes flight recorder dumps on a signal: it must still work at the next signal.
TEST(OutOfMemory, OfADumpAtASignal) {
  for (int failing = 0; failing < 20 && !HasFailure(); ++failing)
    run_apart(failing, [&] {
      char folder[] = "/tmp/strait-memory-test-XXXXXX";
      ASSERT_NE(mkdtemp(folder), nullptr);
      setenv("STRAIT_FLIGHT_RECORDER", folder, 1);
      straitUniqueId id;
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitGetUniqueId(&id));
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, 1, &id, 0, nullptr));
      failing_of_next_thread = failing;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (std::filesystem::is_empty(folder) && std::chrono::steady_clock::now() < deadline) {
        raise(SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_FALSE(std::filesystem::is_empty(folder));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
      std::filesystem::remove_all(folder);
    });
}

TEST(OutOfMemory, AllReduce) { run_with_failures(all_reduce); }
TEST(OutOfMemory, QuantizedAllReduce) { run_with_failures(quantized_all_reduce); }
TEST(OutOfMemory, AllToAllV) { run_with_failures(all_to_all_v); }
TEST(OutOfMemory, Ring) { run_with_failures(ring); }
TEST(OutOfMemory, MixedGroup) { run_with_failures(mixed_group); }
TEST(OutOfMemory, Registration) { run_with_failures(register_memory); }
TEST(OutOfMemory, RegistrationInAGroup) { run_with_failures(register_in_a_group); }
TEST(OutOfMemory, Split) { run_with_failures(split); }

}  // namespace
}  // namespace strait::testing
