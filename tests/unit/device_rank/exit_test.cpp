// How GPU ranks treat a peer whose process ends without destroying its communicator.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "fake_device_rank.hpp"
#include "support/ranks.hpp"
#include "support/shared_count.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

straitComm_t join(const straitUniqueId& id, int rank) {
  straitConfig_t config = test_config();
  config.device = rank;
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, rank, &config));
  return comm;
}

/// Makes a call. Before it, the rank examines its peer.
straitResult_t call(straitComm_t comm) {
  float value = 0;
  return straitAllReduce(&value, &value, 1, straitFloat32, straitSum, comm, nullptr);
}

/// Returns rank 0 of two, after its peer, a process, has joined, made a call, and then run `end`.
template <class End>
straitComm_t rank_whose_peer(const End& end) {
  fake_gpu.idle = 1;
  fake_gpu.looks_at_peers = true;
  LateId id;
  SharedCount called;
  const pid_t peer = fork_rank([&] {
    const straitComm_t comm = join(id.await(), 1);
    STRAIT_EXPECT_OK(call(comm));
    while (called.value == 0) std::this_thread::yield();
    end();
  });
  const straitComm_t comm = join(id.make(), 0);
  STRAIT_EXPECT_OK(call(comm));
  ++called.value;
  EXPECT_EQ(wait_for(peer, 20'000), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until the peer is seen to have ended
  return comm;
}

/// On a busy machine the peer may not be seen to have ended yet: the rank calls until it is.
void expect_death_is_told(straitComm_t comm) {
  straitResult_t result = call(comm);
  for (int tries = 0; result == straitSuccess && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    result = call(comm);
  }
  EXPECT_EQ(result, straitRemoteError);
  EXPECT_THAT(straitGetLastError(comm), AnyOf(HasSubstr("whose process has died"), HasSubstr("its process died")));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// A script may end without destroying its communicator while other ranks still evaluate: they may continue, and end
/// without an error.
TEST(Exit, OfOneThatHasNothingLeftToDoIsNoDeath) {
  const straitComm_t comm = rank_whose_peer([] { std::exit(0); });
  for (int i = 0; i < 3; ++i) {
    STRAIT_EXPECT_OK(call(comm));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  STRAIT_EXPECT_OK(straitCommSynchronize(comm));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// A GPU may be busy for long with what needs nothing of that rank: other work of its stream, or data of a third rank.
TEST(Exit, IsNoDeathToOneWhoseGpuIsBusy) {
  for (const int idle : {0, -1}) {  // -1: the driver does not answer
    const straitComm_t comm = rank_whose_peer([] { std::exit(0); });
    fake_gpu.idle = idle;
    for (int i = 0; i < 4; ++i) {
      STRAIT_EXPECT_OK(call(comm));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    fake_gpu.idle = 1;
    STRAIT_EXPECT_OK(call(comm));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  }
}

TEST(Exit, IsToldToWhoGoesOnWaiting) {
  fake_gpu.has_attendants = true;
  const straitComm_t comm = rank_whose_peer([] { std::exit(0); });
  straitResult_t error = straitSuccess;
  for (int times = 0; error == straitSuccess && times < 1000; ++times) {
    std::atomic_ref(fake_gpu.mailboxes[0].waits) = 2;  // a kernel waits for rank 1
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
  }
  EXPECT_EQ(error, straitRemoteError);
  EXPECT_THAT(straitGetLastError(comm),
              AllOf(HasSubstr("a kernel on rank 0 "), HasSubstr(" needs rank 1 "),
                    HasSubstr("whose process has ended without destroying its communicator")));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
  fake_gpu.has_attendants = false;
}

/// A busy machine's driver may take a moment to answer whether the GPU is idle.
TEST(Exit, IsAnnouncedOnceTheDriverAnswers) {
  const straitComm_t comm = rank_whose_peer([] {
    fake_gpu.idle = -1;
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      fake_gpu.idle = 1;
    }).detach();
    std::exit(0);
  });
  for (int i = 0; i < 3; ++i) STRAIT_EXPECT_OK(call(comm));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST(Exit, OfOneThatWasAtWorkIsADeath) {
  expect_death_is_told(rank_whose_peer([] {
    fake_gpu.idle = 0;
    std::exit(0);
  }));
}

TEST(Exit, WithoutAWordIsADeath) {
  expect_death_is_told(rank_whose_peer([] { ::_exit(0); }));
}

}  // namespace
}  // namespace strait::testing
