// Whether GPU ranks all see at once that one of them has failed. Without that, copy engines are not used.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "fake_device_rank.hpp"
#include "gpu_ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Found {
  bool shares = false;
  std::string log;
};

/// Opens two ranks over that transport, with copy engines for calls of at least `copy_engine_bytes`.
Found find(const char* transport, const char* copy_engine_bytes) {
  Found found;
  setenv("STRAIT_TRANSPORT", transport, 1);
  setenv("STRAIT_COPY_ENGINE_BYTES", copy_engine_bytes, 1);
  fake_gpu.on_open = [&](const DeviceRank::Request& request) -> Status {
    if (request.rank == 0) found.shares = request.shares_control;
    return {};
  };
  ::testing::internal::CaptureStderr();
  for (const straitComm_t comm : join_in_a_group(2)) STRAIT_EXPECT_OK(straitCommDestroy(comm));
  found.log = ::testing::internal::GetCapturedStderr();
  fake_gpu.on_open = nullptr;
  unsetenv("STRAIT_TRANSPORT");
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
  return found;
}

TEST(SharedControl, IsThereWhereRanksShareMemory) {
  for (const char* transport : {"auto", "loopback", "shm", "shm_file"}) {
    const Found found = find(transport, "1M");
    EXPECT_TRUE(found.shares) << transport;
    EXPECT_THAT(found.log, Not(HasSubstr("copy engines"))) << transport;
  }
}

TEST(SharedControl, IsNotThereOverTcpWhichWhoAsksForCopyEnginesIsTold) {
  const Found asked = find("tcp", "1M");
  EXPECT_FALSE(asked.shares);
  EXPECT_THAT(asked.log, HasSubstr("copy engines carry nothing"));
  const Found unasked = find("tcp", "0");
  EXPECT_FALSE(unasked.shares);
  EXPECT_THAT(unasked.log, Not(HasSubstr("copy engines")));
}

}  // namespace
}  // namespace strait::testing
