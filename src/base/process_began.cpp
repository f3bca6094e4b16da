#include "base/process_began.hpp"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace strait {
namespace {

std::int64_t read_process_began() {
  constexpr int fields_before = 19;  // of proc(5), between the name, which may hold anything, and `starttime`
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  using std::chrono::microseconds;
  // Before the time since boot: what comes between the two makes the result earlier, not later.
  const auto now = std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch());
  timespec since_boot{};
  if (name_end == text.npos || ticks_per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 0; field < fields_before; ++field) fields >> skipped;
  std::int64_t start_ticks = 0;
  if (!(fields >> start_ticks)) return 0;
  const std::int64_t since_boot_us = since_boot.tv_sec * 1'000'000 + since_boot.tv_nsec / 1000;
  return now.count() - (since_boot_us - start_ticks * 1'000'000 / ticks_per_second);
}

}  // namespace

std::int64_t process_began_unix_us() {
  static std::atomic<std::int64_t> known{0};
  static std::atomic<pid_t> known_of{0};  // a forked child began later
  if (known_of.load(std::memory_order_acquire) != getpid()) {
    known = read_process_began();
    known_of.store(getpid(), std::memory_order_release);
  }
  return known;
}

}  // namespace strait
