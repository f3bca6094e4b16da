// Groups where threads cannot be started.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <pthread.h>

#include <cerrno>
#include <string>

#include "support/ranks.hpp"

namespace {

thread_local bool no_threads = false;

}  // namespace

/// In place of the C library's.
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

}  // namespace
}  // namespace strait::testing
