#include "base/process_began.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace strait {
namespace {

std::int64_t now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

TEST(ProcessBegan, IsWhenTheProcessWasStarted) {
  const std::int64_t own = process_began_unix_us();
  EXPECT_LE(own, now_us());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(process_began_unix_us(), own);
  const std::int64_t before = now_us();
  const pid_t child = fork();
  if (child == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::int64_t began = process_began_unix_us();
    _exit(began > before - 25'000 && began < now_us() - 45'000 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace strait
