// Groups when threads cannot be started.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "support/ranks.hpp"
#include "support/stopwatch.hpp"

namespace {

thread_local bool no_threads = false;

}  // namespace

/// Replaces the C library's function.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*body)(void*), void* argument) noexcept {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return no_threads ? EAGAIN : real(thread, attributes, body, argument);
}

namespace strait::testing {
namespace {

straitResult_t init_in_a_group(int ranks, straitComm_t (&comms)[2]) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitConfig_t config = test_config();
  config.init_timeout_ms = 500;
  STRAIT_EXPECT_OK(straitGroupStart());
  for (int rank = 0; rank < ranks; ++rank)
    STRAIT_EXPECT_OK(straitCommInitRank(&comms[rank], ranks, &id, rank, &config));
  no_threads = true;
  const straitResult_t result = straitGroupEnd();
  no_threads = false;
  return result;
}

TEST(MissingThreads, ARankByItselfNeedsNone) {
  straitComm_t comms[2] = {};
  STRAIT_EXPECT_OK(init_in_a_group(1, comms));
  STRAIT_EXPECT_OK(straitBarrier(comms[0], nullptr));
  STRAIT_EXPECT_OK(straitCommDestroy(comms[0]));
}

TEST(MissingThreads, OfOtherRanksAreToldOf) {
  straitComm_t comms[2] = {};
  EXPECT_EQ(init_in_a_group(2, comms), straitSystemError);
  EXPECT_THAT(straitGetLastError(nullptr), ::testing::HasSubstr("ulimit -u"));
  EXPECT_EQ(straitGroupEnd(), straitInvalidUsage) << "the group is over";
  for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// Another thread's rank waits in the call for the two ranks of this thread, and must be told.
TEST(MissingThreads, OfSplitsAndRegistrationsAreToldToWhoWaitsForThem) {
  const auto split = [](straitComm_t comm) {
    straitComm_t part = nullptr;
    return straitCommSplit(comm, -1, 0, &part, nullptr);
  };
  const auto registers = [](straitComm_t comm) {
    static int memory[4];
    void* handle = nullptr;
    return straitCommRegister(comm, memory, sizeof memory, &handle);
  };
  for (const auto call : {+split, +registers}) {
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    const straitConfig_t config = test_config();
    std::jthread other([&] {
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, 3, &id, 2, &config));
      const Stopwatch watch;
      EXPECT_EQ(call(comm), straitRemoteError);
      EXPECT_THAT(straitGetLastError(nullptr), ::testing::HasSubstr("ulimit -u"));
      EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
    straitComm_t comms[2] = {};
    const auto in_a_group = [&](auto&& each) {
      STRAIT_EXPECT_OK(straitGroupStart());
      for (const int rank : {0, 1}) STRAIT_EXPECT_OK(each(rank));
      return straitGroupEnd();
    };
    STRAIT_EXPECT_OK(in_a_group([&](int rank) { return straitCommInitRank(&comms[rank], 3, &id, rank, &config); }));
    no_threads = true;
    EXPECT_EQ(in_a_group([&](int rank) { return call(comms[rank]); }), straitSystemError);
    no_threads = false;
    STRAIT_EXPECT_OK(in_a_group([&](int rank) { return straitBarrier(comms[rank], nullptr); }));
    for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
  }
}

}  // namespace
}  // namespace strait::testing
