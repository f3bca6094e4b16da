// Memory of the drop-in and its registration, with host ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "abi/check_sum.hpp"
#include "support/freed_memory.hpp"

namespace strait::testing {
namespace {

using Values = std::vector<std::int32_t>;

TEST(Memory, AllocatedRegisteredAndFreed) {
  on_processes(2, [](ncclComm_t comm, int rank, int ranks) {
    constexpr std::size_t count = 10'000;
    void* memory = nullptr;
    NCCL_EXPECT_OK(ncclMemAlloc(&memory, 2 * count * sizeof(int)));
    int* in = static_cast<int*>(memory);
    int* out = in + count;
    std::fill(in, in + count, rank + 1);
    ncclWindow_t window = nullptr;
    NCCL_EXPECT_OK(ncclCommWindowRegister(comm, memory, 2 * count * sizeof(int), &window, NCCL_WIN_COLL_SYMMETRIC));
    void* user = nullptr;
    NCCL_EXPECT_OK(ncclWinGetUserPtr(comm, window, &user));
    EXPECT_EQ(user, memory);
    NCCL_EXPECT_OK(ncclAllReduce(in, out, count, ncclInt32, ncclSum, comm, nullptr));
    EXPECT_EQ(std::vector<int>(out, out + count), std::vector<int>(count, ranks * (ranks + 1) / 2));
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, window));
    NCCL_EXPECT_OK(ncclMemFree(memory));
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
    EXPECT_EQ(ncclMemFree(nullptr), ncclSuccess);
    EXPECT_EQ(ncclMemAlloc(nullptr, 1), ncclInvalidArgument);
  });
}

/// NCCL accepts these arguments, and its programs do not check: with NCCL, a registration that does nothing returns
/// NULL.
TEST(Memory, NothingIsAllocatedAndGivenBack) {
  int none = 0;
  void* memory = &none;
  NCCL_EXPECT_OK(ncclMemAlloc(&memory, 0));
  EXPECT_EQ(memory, nullptr);
  NCCL_EXPECT_OK(ncclMemFree(memory));
  ncclComm_t comm = nullptr;
  NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
  NCCL_EXPECT_OK(ncclCommDeregister(comm, nullptr));
  NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, nullptr));
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// PyTorch does this before an abort.
TEST(Memory, WindowsAreAlsoGivenBackLikeRegistrations) {
  ncclComm_t comm = nullptr;
  NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
  int value = 0;
  ncclWindow_t window = nullptr;
  NCCL_EXPECT_OK(ncclCommWindowRegister(comm, &value, sizeof value, &window, NCCL_WIN_COLL_SYMMETRIC));
  NCCL_EXPECT_OK(ncclCommDeregister(comm, window));
  EXPECT_EQ(ncclCommDeregister(comm, window), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// One thread with several ranks, as in nccl-tests.
TEST(Memory, WindowsAreRegisteredInAGroup) {
  constexpr std::size_t ranks = 3, count = 5000;
  ncclComm_t comms[ranks] = {};
  NCCL_EXPECT_OK(ncclCommInitAll(comms, ranks, nullptr));
  std::vector<int> in[ranks], out[ranks];
  ncclWindow_t in_windows[ranks] = {}, out_windows[ranks] = {};
  NCCL_EXPECT_OK(ncclGroupStart());
  for (std::size_t r = 0; r < ranks; ++r) {
    in[r].assign(count, static_cast<int>(r) + 1);
    out[r].assign(count, -1);
    NCCL_EXPECT_OK(ncclCommWindowRegister(comms[r], in[r].data(), count * sizeof(int), &in_windows[r], 1));
    NCCL_EXPECT_OK(ncclCommWindowRegister(comms[r], out[r].data(), count * sizeof(int), &out_windows[r], 1));
  }
  NCCL_EXPECT_OK(ncclGroupEnd());
  NCCL_EXPECT_OK(ncclGroupStart());
  for (std::size_t r = 0; r < ranks; ++r)
    NCCL_EXPECT_OK(ncclAllReduce(in[r].data(), out[r].data(), count, ncclInt32, ncclSum, comms[r], nullptr));
  NCCL_EXPECT_OK(ncclGroupEnd());
  for (std::size_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(out[r], std::vector<int>(count, 6));
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comms[r], in_windows[r]));
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comms[r], out_windows[r]));
    NCCL_EXPECT_OK(ncclCommDestroy(comms[r]));
  }
}

/// The end of the group uses the window's memory; deregistering it earlier must be refused.
TEST(Memory, WindowsAreNotGivenBackInTheGroupThatRegistersThem) {
  for (const bool fails : {false, true}) {
    ncclComm_t comm = nullptr;
    NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
    std::vector<int> values(1000, 7);
    ncclWindow_t window = nullptr;
    NCCL_EXPECT_OK(ncclGroupStart());
    NCCL_EXPECT_OK(ncclCommWindowRegister(comm, values.data(), 4000, &window, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("End it first"), std::string::npos);
    std::jthread([&] { EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidUsage); }).join();
    if (fails) {
      EXPECT_EQ(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidUsage);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    } else {
      NCCL_EXPECT_OK(ncclGroupEnd());
    }
    void* user = nullptr;
    NCCL_EXPECT_OK(ncclWinGetUserPtr(comm, window, &user));
    EXPECT_EQ(user, values.data());
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, window));
    NCCL_EXPECT_OK(ncclCommDestroy(comm));
  }
}

/// Each window can be deregistered once, also if several threads try.
TEST(Memory, WindowsAreGivenBackOnce) {
  constexpr int windows = 100;
  ncclComm_t comm = nullptr;
  NCCL_EXPECT_OK(ncclCommInitAll(&comm, 1, nullptr));
  void* memory = nullptr;
  NCCL_EXPECT_OK(ncclMemAlloc(&memory, 4096));
  for (int i = 0; i < windows; ++i) {
    ncclWindow_t window = nullptr;
    NCCL_EXPECT_OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    std::atomic<int> ready{0}, given_back{0}, refused{0};
    const auto give_back = [&] {
      for (++ready; ready < 2;) std::this_thread::yield();
      const ncclResult_t result = ncclCommWindowDeregister(comm, window);
      if (result == ncclSuccess) ++given_back;
      if (result == ncclInvalidArgument) ++refused;
    };
    {
      std::jthread other(give_back);
      give_back();
    }
    ASSERT_EQ(given_back, 1);
    ASSERT_EQ(refused, 1);
  }
  NCCL_EXPECT_OK(ncclMemFree(memory));
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// A registration by one rank alone, and windows on memory that peers cannot read directly, are accepted and do no
/// harm.
TEST(Memory, AnyMemoryCanBeRegistered) {
  on_processes(2, [](ncclComm_t comm, int rank, int ranks) {
    std::vector<int> in(1000, rank + 1), out(1000);
    void* handle = nullptr;
    if (rank == 0) NCCL_EXPECT_OK(ncclCommRegister(comm, in.data(), in.size() * sizeof(int), &handle));
    for (const int flags : {0, NCCL_WIN_COLL_SYMMETRIC}) {
      ncclWindow_t window = nullptr;
      EXPECT_EQ(ncclCommWindowRegister(comm, out.data(), ~std::size_t{0}, &window, flags), ncclInvalidArgument);
      NCCL_EXPECT_OK(ncclCommWindowRegister(comm, out.data(), out.size() * sizeof(int), &window, flags));
      NCCL_EXPECT_OK(ncclAllReduce(in.data(), out.data(), out.size(), ncclInt32, ncclSum, comm, nullptr));
      EXPECT_EQ(out, std::vector<int>(1000, ranks * (ranks + 1) / 2));
      NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, window));
    }
    if (rank == 0) {
      NCCL_EXPECT_OK(ncclCommDeregister(comm, handle));
      EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidArgument);
    }
  });
}

}  // namespace
}  // namespace strait::testing
