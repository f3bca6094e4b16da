// A kernel that has given up at its deadline is reported by the next call of any kind. Without a GPU.
#include <gmock/gmock.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <vector>

#include "fake_device_rank.hpp"
#include "gpu_ranks.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

/// A program that has seen a stream end may ask at once, before the attendant thread, which checks now and then, has
/// noticed. Here there is no attendant.
TEST(DeviceRankDeadline, IsAnErrorToWhoeverAsksFirst) {
  using Ask = std::function<straitResult_t(straitComm_t)>;
  float buffer[8] = {};
  const auto barrier = [](straitComm_t comm) { return straitBarrier(comm, nullptr); };
  const auto send = [&](straitComm_t comm) { return straitSend(buffer, 4, straitFloat32, 0, comm, nullptr); };
  const auto receive = [&](straitComm_t comm) { return straitRecv(buffer + 4, 4, straitFloat32, 0, comm, nullptr); };
  /// The deadline passes after the group's calls have been made and before the group ends.
  const auto group_of = [](const std::vector<Ask>& calls) -> Ask {
    return [calls](straitComm_t comm) {
      const std::atomic_ref timed_out(fake_gpu.mailboxes[0].timed_out);
      timed_out = 0;
      STRAIT_EXPECT_OK(straitGroupStart());
      for (const Ask& call : calls) STRAIT_EXPECT_OK(call(comm));
      timed_out = 1;
      return straitGroupEnd();
    };
  };
  const Ask asks[] = {
      [](straitComm_t comm) {
        EXPECT_THAT(straitGetLastError(comm), HasSubstr("longer than its deadline"));
        return straitTimeout;
      },
      [](straitComm_t comm) {
        straitResult_t error = straitSuccess;
        STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
        return error;
      },
      straitCommSynchronize,
      barrier,
      send,
      group_of({barrier}),
      group_of({barrier, barrier}),
      group_of({send, receive}),
      [](straitComm_t comm) {
        straitComm_t part = nullptr;
        return straitCommSplit(comm, 0, 0, &part, nullptr);
      },
  };
  fake_gpu.launch_error.clear();
  fake_gpu.captures = false;
  fake_gpu.aggregates = 2;  // the group's calls go into one launch
  for (std::size_t i = 0; i < std::size(asks); ++i) {
    const straitComm_t comm = join_in_a_group(1).front();
    STRAIT_EXPECT_OK(barrier(comm));
    std::atomic_ref(fake_gpu.mailboxes[0].timed_out) = 1;
    const int launches = fake_gpu.launches;
    EXPECT_EQ(asks[i](comm), straitTimeout) << i;
    EXPECT_EQ(fake_gpu.launches, launches) << i;
    fake_gpu.mailboxes[0].timed_out = 0;
    EXPECT_EQ(barrier(comm), straitTimeout) << "sticky, " << i;
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  }
  fake_gpu.aggregates = 1;
}

}  // namespace
}  // namespace strait::testing
