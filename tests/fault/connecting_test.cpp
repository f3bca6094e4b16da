// Failures while a rank connects to another that accepts no connections.
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstdlib>

#include "fault/rank_processes.hpp"
#include "support/shared_count.hpp"

namespace {
/// Whether this process accepts no connections; and the number of connections kept waiting, over all processes.
bool lets_nobody_in = false;
strait::testing::SharedCount* kept_out = nullptr;
}  // namespace

/// Replaces the C library's function.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  if (!lets_nobody_in) return static_cast<int>(syscall(SYS_accept4, listener, address, size, flags));
  ++kept_out->value;
  for (;;) pause();
}

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

class Connecting : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("STRAIT_TRANSPORT", "tcp", 1);
    kept_out = &count_;
  }
  void TearDown() override { unsetenv("STRAIT_TRANSPORT"); }
  bool await_somebody_outside() const {
    const auto deadline = Clock::now() + seconds(10);
    while (count_.value == 0 && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(200));  // until the others only wait
    return count_.value != 0;
  }
  SharedCount count_;
};

TEST_F(Connecting, AnAbortEndsIt) {
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    lets_nobody_in = rank == 1;
    if (rank == 1) {
      join(id, rank, 2, report);
      return;
    }
    const straitConfig_t config = test_config();
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, 0, &config));
    Clock::time_point aborted_at;
    std::jthread user([&] {
      EXPECT_TRUE(await_somebody_outside());
      aborted_at = Clock::now();
      STRAIT_EXPECT_OK(straitCommAbort(comm));
    });
    EXPECT_EQ(straitGroupEnd(), straitAborted) << straitGetLastError(nullptr);
    const auto ended_at = Clock::now();
    user.join();
    EXPECT_LT(ended_at - aborted_at, seconds(1));
  });
  EXPECT_EQ(processes.end(0, 25'000), 0);
}

/// Rank 2 dies while rank `silent`, to which rank `connecting` connects, accepts no connections.
void expect_death_is_heard(int silent, int connecting, const std::function<bool()>& await) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    lets_nobody_in = rank == silent;
    EXPECT_EQ(join(id, rank, 3, report), nullptr);
  });
  EXPECT_TRUE(await());
  const Stopwatch since_death;
  processes.signal(2, SIGKILL);
  processes.end(2, 1000);
  EXPECT_EQ(processes.end(connecting, 25'000), 0);
  const Report& report = processes.report(connecting);
  EXPECT_EQ(report.result, straitRemoteError);
  EXPECT_THAT(report.message, HasSubstr("rank 2"));
  EXPECT_LT(since_death.until(report.failed_at), seconds(1));
}

TEST_F(Connecting, ForDataADeathIsHeard) {
  expect_death_is_heard(1, 0, [this] { return await_somebody_outside(); });
}

TEST_F(Connecting, ToItsNeighbourADeathIsHeard) {
  expect_death_is_heard(0, 1, [this] { return await_somebody_outside(); });
}

}  // namespace
}  // namespace strait::testing
