// A communicator is finalized only when its work on the GPU is done; with GPU ranks on a fake GPU.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "abi/abi_ranks.hpp"
#include "nccl/driver.hpp"
#include "unit/device_rank/fake_device_rank.hpp"

/// A driver with one device. The tests allocate no memory on it.
namespace strait::nccl::driver {
bool has_failed = false;
Problem current_device(int& device) {
  device = 0;
  return has_failed ? "no driver" : "";
}
Problem device_count(int& devices) {
  devices = 1;
  return {};
}
Problem allocate(void** /*pointer*/, std::size_t /*size_bytes*/) { return "no memory"; }
Problem free(void* /*pointer*/) { return "no memory"; }
}  // namespace strait::nccl::driver

namespace strait::testing {
namespace {

using namespace std::chrono_literals;

ncclComm_t make(int blocking) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), blocking ? ncclSuccess : ncclInProgress);
  EXPECT_EQ(await_ready(comm), ncclSuccess);
  fake_gpu.idle = 0;
  return comm;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  NCCL_EXPECT_OK(ncclCommGetAsyncError(comm, &state));
  return state;
}

/// Makes a call on another thread, expects that it waits for the GPU, and returns its future result.
template <class Call>
std::future<ncclResult_t> call_that_waits(Call&& call) {
  auto result = std::async(std::launch::async, std::forward<Call>(call));
  EXPECT_EQ(result.wait_for(50ms), std::future_status::timeout);
  return result;
}

/// As after any other error, programs find no handle that they could end.
TEST(Init, WithoutADeviceMakesNoHandle) {
  ncclUniqueId id;
  NCCL_EXPECT_OK(ncclGetUniqueId(&id));
  auto* comm = reinterpret_cast<ncclComm_t>(&id);
  nccl::driver::has_failed = true;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclUnhandledCudaError);
  nccl::driver::has_failed = false;
  EXPECT_EQ(comm, nullptr);
}

TEST(Finalize, WaitsForTheGpu) {
  ncclComm_t comm = make(1);
  auto result = call_that_waits([&] { return ncclCommFinalize(comm); });
  EXPECT_EQ(state_of(comm), ncclSuccess) << "it is no news to a watchdog";
  fake_gpu.idle = 1;
  EXPECT_EQ(result.get(), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

TEST(Finalize, IsInProgressMeanwhileWhereItDoesNotBlock) {
  ncclComm_t comm = make(0);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(state_of(comm), ncclInProgress);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("finalized"), std::string::npos);
  fake_gpu.idle = 1;
  EXPECT_EQ(await_ready(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// The same holds if the program destroys a communicator within the group.
TEST(Finalize, ComesBehindTheOperationsOfAGroup) {
  for (const bool destroys : {false, true}) {
    ncclComm_t comm = make(1), other = make(1);
    const int before = fake_gpu.launches;
    auto result = call_that_waits([&] {
      int value = 0;
      NCCL_EXPECT_OK(ncclGroupStart());
      NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
      NCCL_EXPECT_OK(ncclCommFinalize(comm));
      NCCL_EXPECT_OK(ncclCommFinalize(other));
      if (destroys) NCCL_EXPECT_OK(ncclCommDestroy(other));
      return ncclGroupEnd();
    });
    for (const Stopwatch watch; fake_gpu.launches == before && watch.elapsed() < 10s;) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(fake_gpu.launches, before + 1);
    fake_gpu.idle = 1;
    EXPECT_EQ(result.get(), ncclSuccess);
    NCCL_EXPECT_OK(ncclCommDestroy(comm));
    if (!destroys) NCCL_EXPECT_OK(ncclCommDestroy(other));
  }
}

TEST(Finalize, IsLeftToAnotherTimeByAGroupThatFails) {
  ncclComm_t comm = make(1);
  fake_gpu.idle = 1;
  NCCL_EXPECT_OK(ncclGroupStart());
  NCCL_EXPECT_OK(ncclCommFinalize(comm));
  EXPECT_EQ(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  NCCL_EXPECT_OK(ncclCommFinalize(comm));
  NCCL_EXPECT_OK(ncclCommDestroy(comm));
}

/// A program that deregisters its windows before it aborts a hanging call must get to the abort. It may have many
/// windows: together they must wait no longer than one.
TEST(Finalize, WindowsAreGivenBackThoughTheGpuHangs) {
  ncclComm_t comm = make(1);
  fake_gpu.idle = 1;
  std::array<int, 5> values{};
  std::vector<ncclWindow_t> windows;
  for (int& value : values)
    NCCL_EXPECT_OK(
        ncclCommWindowRegister(comm, &value, sizeof value, &windows.emplace_back(), NCCL_WIN_COLL_SYMMETRIC));
  fake_gpu.idle = 0;
  const Stopwatch watch;
  for (ncclWindow_t window : windows) NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, window));
  EXPECT_LT(watch.elapsed(), 9s);
  NCCL_EXPECT_OK(ncclCommAbort(comm));
  fake_gpu.idle = 1;
}

/// PyTorch does this before it aborts.
TEST(Finalize, WindowsAreGivenBackMeanwhile) {
  ncclComm_t comm = make(0);
  fake_gpu.idle = 1;
  int value = 0;
  ncclWindow_t window = nullptr;
  void* handle = nullptr;
  NCCL_EXPECT_OK(ncclCommWindowRegister(comm, &value, sizeof value, &window, NCCL_WIN_COLL_SYMMETRIC));
  NCCL_EXPECT_OK(ncclCommRegister(comm, &value, sizeof value, &handle));
  fake_gpu.idle = 0;
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  NCCL_EXPECT_OK(ncclCommDeregister(comm, handle));
  NCCL_EXPECT_OK(ncclCommDeregister(comm, window));
  EXPECT_EQ(state_of(comm), ncclInProgress);
  NCCL_EXPECT_OK(ncclCommAbort(comm));
  fake_gpu.idle = 1;
}

TEST(Finalize, IsEndedByARevokeAndByAnAbort) {
  for (const int blocking : {1, 0})
    for (const bool aborts : {false, true}) {
      ncclComm_t comm = make(blocking);
      std::future<ncclResult_t> result;
      if (blocking == 1)
        result = call_that_waits([&] { return ncclCommFinalize(comm); });
      else
        EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
      const Stopwatch watch;
      NCCL_EXPECT_OK(aborts ? ncclCommAbort(comm) : ncclCommRevoke(comm, 0));
      if (blocking == 1) {
        EXPECT_EQ(result.get(), ncclRemoteError);
      } else if (!aborts) {
        EXPECT_EQ(await_ready(comm), ncclRemoteError);
      }
      EXPECT_LT(watch.elapsed(), 5s);
      if (!aborts) NCCL_EXPECT_OK(ncclCommDestroy(comm));
      fake_gpu.idle = 1;
    }
}

}  // namespace
}  // namespace strait::testing
