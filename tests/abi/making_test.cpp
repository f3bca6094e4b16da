// Communicators of the drop-in that are still being made: what ends their set-up, and the old communicators' state
// meanwhile; with host ranks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "abi/check_sum.hpp"
#include "abi/naps.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

constexpr int ranks = 2;
using Comms = std::array<ncclComm_t, ranks>;

ncclConfig_t in_the_background() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Makes communicators whose later set-up calls run in the background.
Comms make_comms() {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = in_the_background();
  Comms comms{};
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], ranks, id, rank, &config), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  return comms;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &state));
  return state;
}

void destroy(const Comms& comms) {
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// Waits long enough for a background operation to begin waiting for other ranks.
void let_it_wait() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

/// Waits until another thread's blocking split of the communicator is under way: then calls on it are refused for that.
/// (Until then this one is refused, too, because it names no place for a new communicator.)
void await_split(ncclComm_t comm) {
  const auto is_split = [&] {
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, nullptr, nullptr), ncclInvalidArgument);
    return std::string(ncclGetLastError(nullptr)).find("another thread splits") != std::string::npos;
  };
  for (const Stopwatch watch; !is_split() && watch.elapsed() < std::chrono::seconds(10);)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(is_split());
}

/// Less than the 10 s for which an abort waits for work that does not end.
constexpr auto soon = std::chrono::seconds(5);

/// Fills freed memory with values by which a communicator that was there would seem to be in progress for ever.
std::vector<std::vector<int>> reuse_memory() {
  std::vector<std::vector<int>> blocks;
  for (std::size_t words = 4; words < 256; words += 4)
    for (int i = 0; i < 8; ++i) blocks.emplace_back(words, ncclInProgress);
  return blocks;
}

/// One thread waits in ncclCommDestroy for the end of the set-up. After another thread has aborted the communicator, it
/// must not look at the freed memory again.
TEST(InTheMaking, ACommunicatorIsDestroyedByOneThreadAndAbortedByAnother) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = in_the_background();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  std::atomic<int> naps{0};
  std::atomic<bool> aborted{false}, over{false};
  std::jthread destroyer([&] {
    const std::function<void()> nap = [&] {
      for (++naps; !aborted;) std::this_thread::yield();
    };
    in_place_of_naps = &nap;
    NCCL_EXPECT_OK(ncclCommDestroy(comm));
    in_place_of_naps = nullptr;
    over = true;
  });
  while (naps == 0) std::this_thread::yield();
  NCCL_EXPECT_OK(ncclCommAbort(comm));
  auto reused = reuse_memory();
  aborted = true;
  while (!over && naps == 1) std::this_thread::yield();
  EXPECT_EQ(naps, 1) << "it looks at memory that is no communicator";
  for (auto& block : reused) std::fill(block.begin(), block.end(), 0);
}

/// The other rank never joins the split.
TEST(InTheMaking, ASplitEndsWhenItsPartIsAborted) {
  const Comms comms = make_comms();
  ncclComm_t part = nullptr;
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &part, nullptr), ncclInProgress);
  let_it_wait();
  const Stopwatch watch;
  NCCL_EXPECT_OK(ncclCommAbort(part));
  EXPECT_EQ(await_ready(comms[0]), ncclRemoteError);
  EXPECT_LT(watch.elapsed(), soon);
  destroy(comms);
}

/// Rank 2 is left out, and only one of the other two calls.
TEST(InTheMaking, AShrinkEndsWhenTheNewCommunicatorIsAborted) {
  for (const int rank : {0, 1}) {
    ncclUniqueId id;
    NCCL_EXPECT_OK(ncclGetUniqueId(&id));
    ncclConfig_t config = in_the_background();
    ncclComm_t comms[3] = {}, less = nullptr;
    for (int r = 0; r < 3; ++r) EXPECT_EQ(ncclCommInitRankConfig(&comms[r], 3, id, r, &config), ncclInProgress);
    for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
    int excluded[] = {2};
    EXPECT_EQ(ncclCommShrink(comms[rank], excluded, 1, &less, nullptr, NCCL_SHRINK_DEFAULT), ncclInProgress);
    let_it_wait();
    const Stopwatch watch;
    NCCL_EXPECT_OK(ncclCommAbort(less));
    EXPECT_EQ(await_ready(comms[rank]), ncclRemoteError);
    EXPECT_LT(watch.elapsed(), soon);
    for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommDestroy(comm));
  }
}

/// Starts a shrink that rank 1 never joins and ends it by `end` on the old communicator, either while the shrink
/// `waits` for rank 1 or before.
void end_shrink(bool waits, const std::function<void(ncclComm_t old)>& end) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = in_the_background();
  ncclComm_t comms[3] = {}, less = nullptr;
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ncclCommInitRankConfig(&comms[r], 3, id, r, &config), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(await_ready(comm), ncclSuccess);
  int excluded[] = {2};
  EXPECT_EQ(ncclCommShrink(comms[0], excluded, 1, &less, nullptr, NCCL_SHRINK_DEFAULT), ncclInProgress);
  if (waits) let_it_wait();
  const Stopwatch watch;
  end(comms[0]);
  EXPECT_EQ(await_ready(less), ncclRemoteError);
  EXPECT_LT(watch.elapsed(), soon);
  for (ncclComm_t comm : {less, comms[1], comms[2]}) NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

TEST(InTheMaking, AShrinkEndsWhenTheOldCommunicatorIsAborted) {
  for (const bool waits : {true, false}) end_shrink(waits, [](ncclComm_t old) { NCCL_EXPECT_OK(ncclCommAbort(old)); });
}

TEST(InTheMaking, AShrinkEndsWhenTheOldCommunicatorIsRevoked) {
  for (const bool waits : {true, false})
    end_shrink(waits, [](ncclComm_t old) {
      NCCL_EXPECT_OK(ncclCommRevoke(old, 0));
      (void)await_ready(old);  // its state includes the shrink
      NCCL_EXPECT_OK(ncclCommDestroy(old));
    });
}

/// A program that queries only the old communicator must not take the end of the first split for that of both.
TEST(InTheMaking, TheOldCommunicatorIsInProgressUntilItsLastPartIsThere) {
  const Comms comms = make_comms();
  Comms first{}, second{};
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclCommSplit(comms[0], 0, 0, &first[0], nullptr));
  NCCL_EXPECT_OK(ncclCommSplit(comms[0], 0, 0, &second[0], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_EQ(ncclCommSplit(comms[1], 0, 1, &first[1], nullptr), ncclInProgress);
  for (ncclComm_t part : first) EXPECT_EQ(await_ready(part), ncclSuccess);
  EXPECT_EQ(await_ready(comms[1]), ncclSuccess);
  EXPECT_EQ(state_of(second[0]), ncclInProgress);
  let_it_wait();
  EXPECT_EQ(state_of(comms[0]), ncclInProgress);
  EXPECT_EQ(ncclCommSplit(comms[1], 0, 1, &second[1], nullptr), ncclInProgress);
  for (ncclComm_t comm : {comms[0], comms[1], second[0], second[1]}) EXPECT_EQ(await_ready(comm), ncclSuccess);
  for (const Comms& some : {first, second, comms}) destroy(some);
}

/// A split and a registration both communicate among the old communicator's ranks, so they must run one after another.
TEST(InTheMaking, ASplitIsOverBeforeWindowsOfItsGroupAreRegistered) {
  for (int round = 0; round < 20; ++round) {
    const Comms comms = make_comms();
    Comms parts{};
    std::vector<int> values(2000);
    ncclWindow_t windows[ranks] = {};
    NCCL_EXPECT_OK(ncclGroupStart());
    for (std::size_t r = 0; r < ranks; ++r) {
      NCCL_EXPECT_OK(ncclCommSplit(comms[r], 0, 0, &parts[r], nullptr));
      NCCL_EXPECT_OK(ncclCommWindowRegister(comms[r], &values[1000 * r], 4000, &windows[r], NCCL_WIN_COLL_SYMMETRIC));
    }
    const ncclResult_t ended = ncclGroupEnd();
    EXPECT_TRUE(ended == ncclSuccess || ended == ncclInProgress) << ncclGetLastError(nullptr);
    for (std::size_t r = 0; r < ranks; ++r) {
      EXPECT_EQ(await_ready(parts[r]), ncclSuccess) << ncclGetLastError(parts[r]);
      EXPECT_EQ(await_ready(comms[r]), ncclSuccess) << ncclGetLastError(comms[r]);
      NCCL_EXPECT_OK(ncclCommWindowDeregister(comms[r], windows[r]));
    }
    destroy(parts);
    destroy(comms);
  }
}

/// The call itself returns the error. The old communicator is still usable, and a watchdog that queries it must see
/// success.
TEST(InTheMaking, ABlockingSplitThatFailsLeavesTheOldCommunicatorWell) {
  for (const bool grouped : {false, true}) {
    Comms comms{}, parts{};
    NCCL_EXPECT_OK(ncclCommInitAll(comms.data(), ranks, nullptr));
    setenv("STRAIT_SOCKET_IFNAME", "=nowhere0", 1);
    {
      std::jthread other([&] { EXPECT_NE(ncclCommSplit(comms[1], 0, 1, &parts[1], nullptr), ncclSuccess); });
      if (grouped) NCCL_EXPECT_OK(ncclGroupStart());
      const ncclResult_t split = ncclCommSplit(comms[0], 0, 0, &parts[0], nullptr);
      EXPECT_NE(grouped ? ncclGroupEnd() : split, ncclSuccess);
    }
    unsetenv("STRAIT_SOCKET_IFNAME");
    if (grouped) {
      EXPECT_NE(state_of(parts[0]), ncclSuccess);
      NCCL_EXPECT_OK(ncclCommDestroy(parts[0]));
    }
    for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(state_of(comms[r]), ncclSuccess);
    {
      std::jthread other([&] { check_sum(comms[1], 1, all_of(ranks)); });
      check_sum(comms[0], 0, all_of(ranks));
    }
    destroy(comms);
  }
}

/// A watchdog on another thread queries the old communicator meanwhile, and may take any state but success for its end.
TEST(InTheMaking, ABlockingSplitIsNoStateOfTheOldCommunicator) {
  for (const bool grouped : {false, true}) {
    Comms comms{}, parts{};
    NCCL_EXPECT_OK(ncclCommInitAll(comms.data(), ranks, nullptr));
    std::atomic<bool> over{false};
    std::jthread caller([&] {
      if (grouped) NCCL_EXPECT_OK(ncclGroupStart());
      NCCL_EXPECT_OK(ncclCommSplit(comms[0], 0, 0, &parts[0], nullptr));
      if (grouped) NCCL_EXPECT_OK(ncclGroupEnd());
      over = true;
    });
    await_split(comms[0]);
    let_it_wait();
    EXPECT_FALSE(over);
    EXPECT_EQ(state_of(comms[0]), ncclSuccess);
    int count = 0, value = 1;
    void* handle = nullptr;
    NCCL_EXPECT_OK(ncclCommCount(comms[0], &count));
    ncclWindow_t window = nullptr;  // a symmetric one communicates, as the split does
    EXPECT_EQ(ncclCommWindowRegister(comms[0], &value, sizeof value, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclInvalidArgument);
    NCCL_EXPECT_OK(ncclCommWindowRegister(comms[0], &value, sizeof value, &window, 0));
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comms[0], window));
    EXPECT_EQ(count, ranks);
    NCCL_EXPECT_OK(ncclCommRegister(comms[0], &value, sizeof value, &handle));
    NCCL_EXPECT_OK(ncclCommDeregister(comms[0], handle));
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], nullptr), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("another thread splits"), std::string::npos);
    NCCL_EXPECT_OK(ncclCommSplit(comms[1], 0, 1, &parts[1], nullptr));
    caller.join();
    destroy(parts);
    destroy(comms);
  }
}

/// A revoke is meant for calls that hang: the other rank never joins.
TEST(InTheMaking, ARevokeEndsASplitAndAnInit) {
  Comms comms{}, parts{};
  NCCL_EXPECT_OK(ncclCommInitAll(comms.data(), ranks, nullptr));
  const Stopwatch watch;
  std::jthread caller([&] { EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &parts[0], nullptr), ncclRemoteError); });
  await_split(comms[0]);
  let_it_wait();
  NCCL_EXPECT_OK(ncclCommRevoke(comms[0], 0));
  caller.join();
  EXPECT_EQ(state_of(comms[0]), ncclSuccess) << "of what this rank has ended itself";
  EXPECT_EQ(state_of(comms[1]), ncclRemoteError);
  destroy(comms);

  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = in_the_background();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  let_it_wait();
  NCCL_EXPECT_OK(ncclCommRevoke(comm, 0));
  EXPECT_EQ(await_ready(comm), ncclRemoteError);
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
  EXPECT_LT(watch.elapsed(), soon);
}

/// A forked child has none of its parent's threads, and must not wait for what these would do.
TEST(InTheMaking, AForkedChildWaitsForNothing) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = in_the_background();
  ncclComm_t comms[2] = {};
  for (ncclComm_t& comm : comms)
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 4, id, &comm == comms, &config), ncclInProgress);
  let_it_wait();
  const Stopwatch watch;
  const pid_t child = fork();
  if (child == 0) {
    ncclResult_t state = ncclSuccess;
    const bool refused = ncclCommGetAsyncError(comms[0], &state) == ncclInvalidUsage &&
                         ncclCommRevoke(comms[0], 0) == ncclInvalidUsage && ncclCommAbort(comms[1]) == ncclInvalidUsage;
    _exit(refused && ncclCommDestroy(comms[0]) == ncclSuccess ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0 && watch.elapsed() < soon) let_it_wait();
  EXPECT_LT(watch.elapsed(), soon);
  if (watch.elapsed() > soon) kill(child, SIGKILL);
  EXPECT_EQ(status, 0);
  for (ncclComm_t comm : comms) EXPECT_EQ(state_of(comm), ncclInProgress);
  for (ncclComm_t comm : comms) NCCL_EXPECT_OK(ncclCommAbort(comm));
}

}  // namespace
}  // namespace strait::testing
