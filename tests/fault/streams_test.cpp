// A program that has closed its standard streams: Strait's descriptors must not get their numbers, and its log must not
// write to anything else that has.
#include <fcntl.h>

#include <cstdlib>

#include "base/log.hpp"
#include "fault/rank_processes.hpp"

namespace strait::testing {
namespace {

/// Closes the standard streams from `first` on, and makes calls that write to the log.
void run_without_streams(int rank, int first, const straitUniqueId& id, Report& report) {
  constexpr std::size_t count = 8192;
  set_log_level(LogLevel::trace);
  for (int fd = first; fd <= STDERR_FILENO; ++fd) close(fd);
  std::int32_t *in = nullptr, *out = nullptr;
  STRAIT_EXPECT_OK(straitMemAlloc(reinterpret_cast<void**>(&in), count * sizeof *in));
  STRAIT_EXPECT_OK(straitMemAlloc(reinterpret_cast<void**>(&out), count * sizeof *out));
  std::fill_n(in, count, rank + 1);
  straitComm_t comm = join(id, rank, 2, report), part = nullptr;
  ASSERT_NE(comm, nullptr) << report.message;
  void* registrations[2] = {};
  STRAIT_EXPECT_OK(straitCommRegister(comm, in, count * sizeof *in, &registrations[0]));
  STRAIT_EXPECT_OK(straitCommRegister(comm, out, count * sizeof *out, &registrations[1]));
  if (rank == 0) std::this_thread::sleep_for(milliseconds(50));  // so that the other rank waits
  STRAIT_EXPECT_OK(straitAllReduce(in, out, count, straitInt32, straitSum, comm, nullptr));
  STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
  log_warn(rank, "late");
  EXPECT_EQ(std::count(in, in + count, rank + 1), static_cast<std::ptrdiff_t>(count));
  EXPECT_EQ(std::count(out, out + count, 3), static_cast<std::ptrdiff_t>(count));
  for (int fd = first; fd <= STDERR_FILENO; ++fd) EXPECT_EQ(fcntl(fd, F_GETFD), -1) << fd << " is taken";
  STRAIT_EXPECT_OK(straitCommDestroy(part));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

class WithoutStreams : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("STRAIT_TRANSPORT", GetParam(), 1); }
  void TearDown() override { unsetenv("STRAIT_TRANSPORT"); }
};
INSTANTIATE_TEST_SUITE_P(Over, WithoutStreams, ::testing::Values("shm", "shm_file", "tcp"));

TEST_P(WithoutStreams, NothingGetsTheirNumbers) {
  for (const int first : {STDERR_FILENO, STDIN_FILENO}) {
    RankProcesses processes(
        2, [&](int rank, const straitUniqueId& id, Report& report) { run_without_streams(rank, first, id, report); });
    processes.expect_all_end_well();
  }
}

}  // namespace
}  // namespace strait::testing
